"""accelerate as its users start it: Accelerator() asks the environment who and where it is."""

import accelerate
import torch

accelerator = accelerate.Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(1)
inputs = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
line = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    line, optimizer, torch.utils.data.DataLoader(data, batch_size=8)
)
for _ in range(2):
    for batch, wanted in loader:
        loss = torch.nn.functional.mse_loss(model(batch), wanted)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]), reduction="sum")
print(
    "RIGHT",
    accelerator.process_index,
    accelerator.num_processes,
    accelerator.local_process_index,
    total.item(),
    accelerator.distributed_type.name,
    [round(float(w), 4) for w in line.weight.detach().flatten()],
    flush=True,
)
