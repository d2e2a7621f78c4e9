"""Pictures of what a model looks at: pages for a browser and plots, from attention weights."""
