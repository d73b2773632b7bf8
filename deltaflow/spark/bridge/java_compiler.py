"""Java sources to class files, by the compiler that every Spark ships."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compile_java(gateway: Any, loader: Any, sources: Mapping[str, str]) -> dict[str, bytes]:
    """Class files by their path in a jar, of sources by file name, against the classes of a class loader.

    Raises Py4JJavaError, in a session PySpark's CapturedException, for sources that do not compile.
    """
    jvm = gateway.jvm
    resource = jvm.org.codehaus.commons.compiler.util.resource
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resource.MapResourceCreator(classes))
    # Version 8 is Janino's newest, and needed to call static methods of interfaces.
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    units = gateway.new_array(resource.Resource, len(sources))
    for i, (name, source) in enumerate(sources.items()):
        units[i] = resource.StringResource(name, source)
    compiler.compile(units)
    return {str(name): bytes(classes.get(name)) for name in classes}
