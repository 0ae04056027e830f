"""Values by schema: types, decoding of what is read, encoding of what is written."""
