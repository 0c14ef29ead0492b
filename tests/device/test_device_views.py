"""Views share memory; in-place operators, out=, resize_ and set_ change what they should."""

from __future__ import annotations

import torch


def test_view_of_a_view_writes_to_the_base() -> None:
    x = torch.arange(12.0, device="mps")
    part = x.view(3, 4)[1:, ::2]
    part.add_(100)
    assert x.tolist() == [0, 1, 2, 3, 104, 5, 106, 7, 108, 9, 110, 11]
    assert part.storage_offset() == 4
    assert part.data_ptr() == x.data_ptr() + 16
    assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert part._base is x


def test_transposed_and_expanded() -> None:
    x = torch.arange(12.0, device="mps")
    turned = x.view(3, 4).t()
    assert turned.stride() == (1, 4)
    turned[0, 0] = -1
    assert x[0].item() == -1
    wide = x.expand(2, 12)
    assert wide.stride() == (0, 1)
    assert wide.data_ptr() == x.data_ptr()
    assert x.unsqueeze(0).squeeze(0).permute(0).data_ptr() == x.data_ptr()


def test_pieces_share_memory() -> None:
    x = torch.ones(12, device="mps")
    first, second = x.chunk(2)
    first.zero_()
    for piece in second.split(2):
        piece.mul_(3)
    x.unfold(0, 3, 3)[0].add_(1)
    assert x.tolist() == [1, 1, 1, 0, 0, 0, 3, 3, 3, 3, 3, 3]
    top, bottom = x.view(2, 6).unbind()
    assert top.data_ptr() == x.data_ptr()
    assert bottom.sum().item() == 18


def test_out_argument_keeps_or_resizes_memory() -> None:
    x = torch.arange(12.0, device="mps")
    right = torch.empty(12, device="mps")
    address = right.data_ptr()
    assert torch.mul(x, 2, out=right) is right
    assert right.data_ptr() == address
    assert right[1].item() == 2
    small = torch.empty(0, device="mps")
    torch.add(x, 1, out=small)
    assert small.shape == (12,)
    assert small.is_mps
    assert small[11].item() == 12


def test_indexing_reads_and_writes() -> None:
    x = torch.arange(6.0, device="mps")
    x[x > 3] = 0
    x[torch.tensor([0, 1], device="mps")] = 7
    assert x.tolist() == [7, 7, 2, 3, 0, 0]
    assert x[torch.tensor([0, 2])].tolist() == [7, 2]  # indices on the CPU, as on a Mac
    x[1:3] = torch.tensor([8.0, 9.0])  # copied from the CPU
    assert x[1:3].tolist() == [8, 9]
    x.index_put_((torch.tensor([5], device="mps"),), torch.tensor(4.0))
    assert x[5].item() == 4
    assert torch.nonzero(x).squeeze(1).tolist() == [0, 1, 2, 3, 5]
    assert torch.masked_select(x, x > 7).tolist() == [8, 9]


def test_copies_between_devices() -> None:
    x = torch.zeros(4, device="mps")
    x.copy_(torch.arange(4))
    assert x.tolist() == [0, 1, 2, 3]
    host = torch.zeros(4, dtype=torch.float64)
    host.copy_(x)
    assert host.tolist() == [0, 1, 2, 3]
    x[::2].copy_(torch.tensor([9.0]))
    assert x.tolist() == [9, 1, 9, 3]


def test_resize_keeps_the_values_and_the_object() -> None:
    x = torch.arange(4.0, device="mps")
    same = x
    x.resize_(1000)
    assert same.shape == (1000,)
    assert x[:4].tolist() == [0, 1, 2, 3]
    x.resize_(2)
    assert x.tolist() == [0, 1]


def test_alias_survives_a_resize_of_its_base() -> None:
    x = torch.arange(4.0, device="mps")
    x.resize_(100000)
    x[50000:].fill_(3)
    assert x[50000:50002].tolist() == [3, 3]
    assert x[:4].tolist() == [0, 1, 2, 3]


def test_set_replaces_the_storage() -> None:
    x = torch.zeros(2, device="mps")
    y = torch.arange(6.0, device="mps")
    x.set_(y)
    assert x.data_ptr() == y.data_ptr()
    x.set_(y.untyped_storage(), 2, (2,), (2,))
    assert x.tolist() == [2, 4]
    x.set_()
    assert x.numel() == 0


def test_views_of_another_dtype() -> None:
    x = torch.arange(4, dtype=torch.int32, device="mps")
    assert x.view(torch.float32).is_mps
    assert x.view(torch.int8).numel() == 16
    pairs = torch.ones(3, 2, device="mps")
    numbers = torch.view_as_complex(pairs)
    assert numbers.dtype == torch.complex64
    numbers.mul_(2j)
    assert pairs.tolist() == [[-2, 2]] * 3
    assert torch.view_as_real(numbers).data_ptr() == pairs.data_ptr()


def test_in_place_changes_of_shape() -> None:
    x = torch.zeros(4, 3, device="mps")
    x.t_()
    x.unsqueeze_(0)
    x.squeeze_()
    assert x.shape == (3, 4)
    x.transpose_(0, 1)
    assert x.shape == (4, 3)
    x.data = torch.zeros(2, device="mps")
    assert x.shape == (2,)


def test_detached_tensor_shares_memory() -> None:
    x = torch.zeros(3, device="mps", requires_grad=True)
    x.detach().fill_(5)
    assert x.tolist() == [5, 5, 5]


def test_channels_last_is_kept() -> None:
    x = torch.rand(2, 3, 4, 5, device="mps").contiguous(memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x + 1).is_contiguous(memory_format=torch.channels_last)
    assert x.clone().stride() == x.stride()
