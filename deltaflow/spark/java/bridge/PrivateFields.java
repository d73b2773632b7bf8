package io.deltaflow.spark.bridge;

import java.lang.reflect.Field;

/** Sets fields of objects of Spark and of Py4J that these themselves set once. */
public final class PrivateFields {
  private PrivateFields() {}

  public static void set(Object object, String name, Object value) {
    for (Class owner = object.getClass(); owner != null; owner = owner.getSuperclass()) {
      try {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        field.set(object, value);
        return;
      } catch (NoSuchFieldException e) {
        continue; // a class above has it
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(e);
      }
    }
    throw new IllegalStateException(object.getClass().getName() + " of this release has no field " + name);
  }
}
