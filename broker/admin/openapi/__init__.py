"""Description of the web port in OpenAPI 3.1, made from its routes and the code of their handlers."""
