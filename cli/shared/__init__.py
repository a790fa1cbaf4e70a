"""What the commands share: options, output, help, and lazy loading."""
