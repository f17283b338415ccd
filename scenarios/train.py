"""The quick start's training script: train_digits on a network of 17 M parameters, so that a
gradient (68 MB) keeps links of 400 Gb/s busy for longer than their latency, with 6 samples per
rank, so that four ranks take 74 steps per epoch. Plain PyTorch; runs unchanged under torchrun."""

from train_digits import main

if __name__ == "__main__":
    main(batch=6, hidden=2048)
