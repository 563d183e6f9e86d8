"""Use the loss in a plain PyTorch loop: any model, any optimiser, any loss.

Run it with ``python examples/training_loop.py``.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import unbag

torch.manual_seed(0)
images, digits = load_digits(return_X_y=True)
X, X_new, y, y_new = (torch.as_tensor(part) for part in train_test_split(images / 16, digits, random_state=0))
X, X_new = X.float(), X_new.float()

# 800 groups of 2 to 6 images each; the number of each digit in a group is known.
sizes = torch.randint(2, 7, (800,))
members = torch.randint(len(X), (int(sizes.sum()),))
groups = unbag.Groups.from_offsets([0, *sizes.cumsum(0).tolist()], members)
aggregate = unbag.LabelProportions()
counts = aggregate.observe(y, groups, n_classes=10)  # from here on, y is not used
print(f"{len(groups)} groups; counts of the first: {counts[0].tolist()}")

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, epochs=20, steps_per_epoch=16)
risk = unbag.UnbiasedRisk(aggregate, loss="gce")  # generalised cross entropy; any function of logits works

for epoch in range(20):
    model.train()
    total = 0.0
    for batch in torch.randperm(len(groups)).split(50):
        rows, in_batch = groups.take(batch).local()  # only the rows of this batch
        loss = risk(model(X[rows]), in_batch, counts[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item() * len(batch)
    if epoch % 10 == 9:
        model.eval()
        with torch.no_grad():
            accuracy = (model(X_new).argmax(1) == y_new).double().mean()
        print(f"epoch {epoch + 1}: risk {total / len(groups):.3f}, {accuracy:.1%} of new images correct")

# Probable labels of the images of the first group, given the model and its counts.
with torch.no_grad():
    posterior = aggregate.posterior(model(X), groups.take(torch.tensor([0])), counts[:1])
for row, labels in zip(groups.members[: int(sizes[0])].tolist(), posterior, strict=True):
    print(f"image {row}: {int(labels.argmax())} with {labels.max():.0%} (it is a {int(y[row])})")
