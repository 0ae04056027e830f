"""Authentication: which role a connection or a request acts with.

`authentication` decides with the providers (token, OpenID Connect, basic, tls); `loading` makes them from the
configuration. All of it is pure: clock and certificates are arguments, files are read at the start only.
"""
