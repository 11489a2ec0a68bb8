"""Reports as one self-contained HTML file: scripts, style and templates that the explorer uses too."""
