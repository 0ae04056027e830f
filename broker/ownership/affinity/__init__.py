"""The rules about which brokers may have a bundle: isolation policies, anti-affinity groups and failure domains. Also
the load that bundles are expected to have."""
