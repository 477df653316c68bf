"""JAX's clock and inputs."""
