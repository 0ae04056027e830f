"""The message viewer of the console: reads by place, decodes by schema."""
