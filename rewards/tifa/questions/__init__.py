"""Questions of TIFA (section 3.1, 3.2): the tuple and the official JSON, generation, parsing, checking, filtering."""
