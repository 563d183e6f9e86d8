"""A fitted classifier as one module of torch: it predicts the same, and can be exported and moved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count

import unbag
from unbag import AggregateClassifier, CrossFitting
from unbag.learners.boosting import has_lightgbm

IDS = np.repeat(np.arange(30), 4)


@pytest.fixture(scope="module")
def data():
    X, labels = blobs(n=120, k=3)
    X = X + 1e6  # scaling in float32 would lose the differences
    X[::9, 1] = np.nan
    return X, unbag.target(IDS, count(labels, IDS, 3))


def fit(data, model, **settings):
    clf = AggregateClassifier(model=model, validation=CrossFitting(2), random_state=0, n_jobs=1, **settings)
    return clf.fit(*data)


def without_trees(clf):
    """Return the classifier with the candidates that have a form as a module."""
    mixture = clf.mixture_
    kept = [place for place, c in enumerate(mixture.candidates) if hasattr(c.models[0], "to_module")]
    weights = mixture.weights[kept] / mixture.weights[kept].sum()
    candidates = [mixture.candidates[place] for place in kept]
    clf.mixture_ = replace(mixture, candidates=candidates, weights=weights, sharpness=mixture.sharpness[kept])
    return clf


def assert_equal(clf, X):
    rows = torch.tensor(X)
    module, expected = clf.to_torch(), torch.from_numpy(clf.predict_log_proba(X)).float()
    torch.testing.assert_close(module(rows), expected, rtol=1e-5, atol=1e-5)
    assert not module.training
    exported = torch.export.export(module, (rows[:5],), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    for n in (len(X), 3):
        torch.testing.assert_close(exported(rows[:n]), expected[:n], rtol=1e-5, atol=1e-5)
    return module


@pytest.mark.parametrize("model", ["linear", "mlp", "rbf"])
def test_models_by_name(data, model):
    module = assert_equal(fit(data, model), data[0])
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"cpu"}
    assert {tensor.device.type for tensor in module.to("meta").state_dict().values()} == {"meta"}


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_mixtures_of_linear_and_kernel_models_clusters_and_networks(data):
    clf = without_trees(fit(data, "auto"))
    assert len(clf.mixture_.candidates) > 1
    assert_equal(clf, data[0])


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_images_and_classes_that_were_named_by_labels():
    X, labels = blobs(n=120, k=2)
    images = np.repeat(X, 12, 1).reshape(120, -1, 6)
    pairs = unbag.Groups.from_sizes([2] * 60)
    z = unbag.PairwiseSimilarity().observe(labels, pairs, 2).numpy()
    clf = AggregateClassifier("pairwise_similarity", "mlp", n_classes=2, random_state=0, validation=CrossFitting(2))
    clf.fit(images, z, groups=pairs)
    for names in (labels, 1 - labels):
        assert_equal(clf.name_classes(images, names), images)


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_trees_are_named_with_what_to_do(data):
    with pytest.raises(ValueError, match=r"contains 'trees', which is no torch module; fit .* model=\"mlp\""):
        fit(data, "trees").to_torch()


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("model", ["linear", "mlp", "rbf"])
def test_a_file_of_onnx_predicts_the_same(data, model, tmp_path):
    pytest.importorskip("onnxscript")
    session = pytest.importorskip("onnxruntime").InferenceSession
    clf, X = fit(data, model), data[0]
    file, rows = tmp_path / "model.onnx", torch.export.Dim("rows")
    torch.onnx.export(clf.to_torch(), (torch.tensor(X),), file, dynamo=True, dynamic_shapes=({0: rows},))
    for n in (len(X), 7):
        (found,) = session(file).run(None, {"x": X[:n]})
        np.testing.assert_allclose(found, clf.predict_log_proba(X[:n]), atol=1e-5)
