"""The data module in a Lightning trainer: parts, order, resuming in the middle of an epoch."""

import lightning.pytorch as pl
import pytest
import torch
from support.builds.written import s3dis_records, s3dis_schema, write_build

from kmip_data import S3DIS
from kmip_data.datasets.lightning import GraphDataModule
from kmip_data.errors import UsageError
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

PARTS = {"train": list(range(21)), "val": list(range(21, 26)), "test": list(range(26, 30))}


class Recorder(pl.LightningModule):
    """Learns one number and notes the first features of every batch it is shown."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = {"train": [], "val": [], "test": []}

    def training_step(self, batch, number):
        self.seen["train"].append((self.current_epoch, float(batch.x[0, 0]), batch.num_graphs))
        return (self.weight - batch.x.mean()) ** 2

    def validation_step(self, batch, number):
        self.seen["val"].append(batch.num_graphs)

    def test_step(self, batch, number):
        self.seen["test"].append(batch.num_graphs)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Stop(pl.Callback):
    """Saves a checkpoint after so many steps, then stops as a kill would: without another word."""

    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lightning") / "build"
    return write_build(folder, s3dis_records(30), s3dis_schema(), parts=PARTS)


def trainer(**options):
    off = dict.fromkeys(
        ("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return pl.Trainer(accelerator="cpu", devices=1, logger=False, **off, **options)


def module(build, **options):
    options = {"batch_size": 4, "seed": 5, "loader_options": {"prefetch": 1}, **options}
    return GraphDataModule(ShardedDataset, path=build.path, **options)


def test_a_datamodule_refuses_a_single_part(build):
    with pytest.raises(UsageError):
        GraphDataModule(ShardedDataset(build.path, "train"), batch_size=4)


def test_wrong_arguments_are_refused_before_anything_is_opened():
    with pytest.raises(TypeError):
        GraphDataModule(S3DIS, kk=3)
    assert repr(GraphDataModule(S3DIS, batch_size=8)) == "GraphDataModule(batch_size=8)"


def test_fit_and_test(build):
    model, data = Recorder(), module(build, eval_batch_size=3)
    run = trainer(max_epochs=2, num_sanity_val_steps=0)
    run.fit(model, datamodule=data)
    run.test(model, datamodule=data, verbose=False)
    assert [n for *_, n in model.seen["train"]] == [4, 4, 4, 4, 4, 1] * 2
    assert model.seen["val"] == [3, 2] * 2
    assert model.seen["test"] == [3, 1]
    epochs = [[x for epoch, x, _ in model.seen["train"] if epoch == e] for e in (0, 1)]
    wanted = GraphLoader(ShardedDataset(build, "train"), 4, shuffle=True, seed=5)
    assert epochs == [[float(batch.x[0, 0]) for batch in wanted] for _ in range(2)]
    assert (data.num_features, data.num_classes) == (9, 13)
    assert str(data) == "GraphDataModule(train, val, test, batch_size=4)"  # reads no batch


def test_loaders_without_the_module(build):
    """Lightning takes a loader as the DataLoader that it is, and makes it again for predictions."""
    whole = ShardedDataset(build)
    for options in ({"batch_size": 4}, {"max_nodes": 40}, {"batch_size": 4, "bucket": 8}):
        model = Recorder()
        loader = GraphLoader(whole, shuffle=True, seed=5, **options)
        run = trainer(max_epochs=2)
        run.fit(model, loader, GraphLoader(whole, **options))
        wanted = GraphLoader(whole, shuffle=True, seed=5, **options)
        batches = len(wanted)  # of the first epoch: Lightning takes as many of the second
        for epoch in (0, 1):
            seen = [x for number, x, _ in model.seen["train"] if number == epoch]
            assert seen == [float(batch.x[0, 0]) for batch in wanted][:batches]

        model.predict_step = lambda batch, batch_idx: batch.x[0, 0]
        predictions = run.predict(model, GraphLoader(whole, num_workers=2, **options))
        usual = GraphLoader(whole, **options)
        assert [float(x) for x in predictions] == [float(batch.x[0, 0]) for batch in usual]


def test_evaluation_in_processes_is_divided_by_the_loader(build, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        data = module(build, eval_batch_size=1)
        for loader in (data.train_dataloader(), data.val_dataloader()):
            assert isinstance(loader.sampler, torch.utils.data.DistributedSampler)
        shares += list(loader.sampler)
    assert sorted(shares) == list(range(5))  # each of five graphs once


def test_overfitting_takes_the_first_batches(build):
    model, whole = Recorder(), ShardedDataset(build)
    trainer(max_epochs=2, overfit_batches=2).fit(model, GraphLoader(whole, 4, shuffle=True))
    usual = [float(batch.x[0, 0]) for batch in GraphLoader(whole, 4)]
    assert [x for _, x, _ in model.seen["train"]] == usual[:2] * 2


def test_resumes_in_the_middle_of_an_epoch(build, tmp_path):
    whole = Recorder()
    trainer(max_epochs=3).fit(whole, datamodule=module(build))
    for step in (2, 9):
        first, second, path = Recorder(), Recorder(), tmp_path / f"{step}.ckpt"
        stopped = trainer(max_epochs=3, callbacks=[Stop(path, step)])
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            stopped.fit(first, datamodule=module(build))
        trainer(max_epochs=3).fit(second, datamodule=module(build), ckpt_path=path)
        assert first.seen["train"] + second.seen["train"] == whole.seen["train"]
        assert torch.equal(second.weight, whole.weight)


def test_a_datamodule_opens_a_name_or_a_folder(build, tmp_path):
    data = GraphDataModule(build.path, batch_size=4, columns=["x", "y"])
    data.setup()
    assert set(data.parts) == set(PARTS)
    assert "pos" not in next(iter(data.val_dataloader()))
    with pytest.raises(UsageError):
        GraphDataModule("s3dis", batch_size=4, home=tmp_path, k=4).setup()


def test_missing_parts_are_refused(tmp_path):
    records = s3dis_records(6)
    some = write_build(
        tmp_path / "some", records, s3dis_schema(), parts={"train": [0, 1, 2, 3], "test": []}
    )
    model, data = Recorder(), module(some)
    trainer(max_epochs=1).fit(model, datamodule=data)
    assert len(model.seen["train"]) == 1
    assert data.val_dataloader() == data.test_dataloader() == []
    none = write_build(tmp_path / "none", records, s3dis_schema(), parts={"val": [0]})
    with pytest.raises(UsageError):
        module(none).train_dataloader()
