"""What a web tier calls: pages and actions."""
