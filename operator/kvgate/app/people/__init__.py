"""What people ask of the pools of a cluster: `kubectl kvgate`."""
