"""What commands print: tables, progress, figures, and where they go."""
