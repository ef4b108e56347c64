"""The autoencoders of CPU windows: layers in torch, training, ONNX graphs, and the runtime that scores without torch."""
