"""One file for each family of models, named as its `model_type`: `read(directory, settings, tensors)` gives what is in a folder in our
names. `settings` is its config.json, `tensors` its model.safetensors; KeyError, TypeError and the like mean that both do not fit."""
