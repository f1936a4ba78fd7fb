"""The table of models: eighty published configs by runtime."""
