# SPDX-License-Identifier: BSD-3-Clause
import torch


class OperatorUser(torch.nn.Module):
    def forward(self, x):
        counter = torch.classes.isopool_test.Counter(40)
        counter.next()
        return torch.ops.isopool_test.twice_plus(x, 5.0), counter.next()


class PlainUser(torch.nn.Module):
    def forward(self, x):
        return torch.ops.isopool_test.twice_plus(x, 5.0) + 1
