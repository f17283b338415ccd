"""The quick start's training script: train_digits with 4 samples per rank, so that four ranks take
112 steps per epoch. Plain PyTorch; runs unchanged under torchrun."""

from train_digits import main

if __name__ == "__main__":
    main(batch=4)
