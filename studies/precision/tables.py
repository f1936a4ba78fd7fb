def write_tables(r, p):
    pass
