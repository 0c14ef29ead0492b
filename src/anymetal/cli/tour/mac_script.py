import torch
from torch import nn

device = torch.device("mps")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 1))
model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
points = torch.rand(256, 2, device=device)
target = (points[:, :1] > points[:, 1:]).float()

for step in range(101):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(points), target)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"{step:3}: loss {loss.item():.3f} on {loss.device}")

shader = torch.mps.compile_shader("""
    kernel void twice(device float* x,
                      uint i [[thread_position_in_grid]]) {
      x[i] *= 2;
    }
""")
x = torch.arange(4.0, device=device)
shader.twice(x)
print(f"a kernel of our own on {x.device}: {x.tolist()}")
