from deltaflow.cli import main

main(prog_name="deltaflow")
