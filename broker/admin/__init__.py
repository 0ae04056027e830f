"""The admin REST resources, one file each; `resources.routes` puts them together. docs/admin-rest.md lists them."""
