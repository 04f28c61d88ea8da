"""The words users write and read: models of the kvgate.dev API and their CRDs."""
