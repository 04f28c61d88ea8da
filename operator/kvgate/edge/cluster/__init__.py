"""The door to Kubernetes: one client with bounds, and the ring's ground on top of it."""
