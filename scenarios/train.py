"""The quick start's training script: train_digits on a network of 4.3 M parameters, so that a
gradient (17 MB) keeps 4 links of 400 Gb/s busy for four times its latency (B = 133 us, L = 31 us:
with one of them down an all-reduce takes L + 4/3 B and its goodput is 0.79), with 6 samples per
rank, so that four ranks take 74 steps per epoch. Plain PyTorch; runs unchanged under torchrun."""

from train_digits import main

if __name__ == "__main__":
    main(batch=6, hidden=1024)
