"""Lightning's DDP as its users start it: the Trainer asks its environment who and where it is."""

import os

import lightning
import torch
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.seen: list[float] = []

    def training_step(self, batch):
        inputs, wanted = batch
        return torch.nn.functional.mse_loss(self.line(inputs), wanted)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(1)
inputs = torch.randn(64, 4)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = Line()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
assert TorchElasticEnvironment.detect()
trainer.fit(model, DataLoader(data, batch_size=8))
weights = model.line.weight.detach().flatten()
print(
    "RIGHT",
    trainer.global_rank,
    trainer.world_size,
    trainer.node_rank,
    trainer.local_rank,
    trainer.global_step,
    [round(float(w), 4) for w in weights],
    flush=True,
)
