"""The manifests in deploy/kubernetes are valid: against the schemas of Kubernetes, strictly. `make test-kubernetes`.

RayJob is no kind of Kubernetes' own, and KubeRay's schema is not in the package: its pods are checked, and its
fields by name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
JOB = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "job.yaml").read_text()))
RAY = yaml.safe_load((DEPLOY / "kubernetes" / "rayjob.yaml").read_text())
SERVICE, BATCH, POLICY = JOB
POD = BATCH["spec"]["template"]["spec"]
VERSIONS = ("1.28", "1.30", "1.33", kubernetes_validate.latest_version())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", JOB, ids=lambda each: str(each["kind"]))
def test_manifests_have_the_schema(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_check_sees_a_mistake() -> None:
    wrong = {**BATCH, "spec": {**BATCH["spec"], "completionmode": "Indexed"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_names_and_numbers_agree() -> None:
    """The supervisor's name is JOB-0.SERVICE, and the number of workers stands in three places."""
    variables = {each["name"]: each["value"] for each in POD["containers"][0]["env"]}
    job, service, port = BATCH["metadata"]["name"], SERVICE["metadata"]["name"], SERVICE["spec"]["ports"][0]["port"]
    assert variables["TAUT_SUPERVISOR"] == f"tcp://{job}-0.{service}:{port}" and POD["subdomain"] == service
    assert SERVICE["spec"]["clusterIP"] == "None" and SERVICE["spec"]["selector"] == {"job-name": job}
    assert BATCH["spec"]["completions"] == BATCH["spec"]["parallelism"] == int(variables["TAUT_WORKERS"])
    mounts = {each["mountPath"] for each in POD["containers"][0]["volumeMounts"]}
    assert {str(Path(variables[name]).parent) for name in ("TAUT_TOKEN_FILE", "TAUT_KEYS_FILE")} <= mounts
    assert not re.search(r"taut1-", (DEPLOY / "kubernetes" / "job.yaml").read_text()), "no secret in the manifest"


def test_the_script_uses_what_the_job_sets() -> None:
    used = set(re.findall(r"\$\{?([A-Z_]+)", (DEPLOY / "kubernetes" / "start.sh").read_text()))
    assert used - {"JOB_COMPLETION_INDEX"} <= {each["name"] for each in POD["containers"][0]["env"]}


def test_nobody_is_root() -> None:
    for pod in (POD, RAY["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000
    assert re.search(r"^USER 1000", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)


def test_the_pods_of_ray_have_the_schema() -> None:
    cluster = RAY["spec"]["rayClusterSpec"]
    assert (RAY["apiVersion"], RAY["kind"]) == ("ray.io/v1", "RayJob")
    assert set(RAY["spec"]) == {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec"}
    assert set(cluster) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": group["template"]["spec"]}
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
