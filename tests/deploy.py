"""Checks in examples/deploy what no schema knows. tests/deploy.sh calls it, with the directory."""

import pathlib
import re
import subprocess
import sys
import tomllib

import yaml

recipes = pathlib.Path(sys.argv[1])
QUARANTINE, ADDRESS, MAX_TTL = 35.3, 35, 30  # src/docs/deployment.md, "The waits"


def check(is_right, what):
    if not is_right:
        sys.exit(f"deploy: {what}")


def manifests(name):
    return [d for d in yaml.safe_load_all((recipes / "kubernetes" / name).read_text()) if d]


def check_workload(name, spec):
    """Names within one workload fit together."""
    pod = spec["template"]["spec"]
    if "selector" in spec:
        labels = spec["template"]["metadata"]["labels"]
        check(spec["selector"]["matchLabels"].items() <= labels.items(), f"{name}: the selector misses its own pods")
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            check(mount["name"] in volumes, f"{name}: there is no volume {mount['name']}")


def check_masters(all_of_them):
    kinds = {(d["kind"], d["metadata"]["name"]): d for d in all_of_them}
    name = "quorate-masters"
    masters, service, nodes = kinds["StatefulSet", name], kinds["Service", name], kinds["Secret", "quorate-nodes"]
    spec, labels = masters["spec"], masters["spec"]["template"]["metadata"]["labels"]
    pod, [server] = spec["template"]["spec"], spec["template"]["spec"]["containers"]
    budget = kinds["PodDisruptionBudget", name]["spec"]
    apart = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    selectors = {
        "Service": service["spec"]["selector"],
        "PodDisruptionBudget": budget["selector"]["matchLabels"],
        **{f"rule for {rule['topologyKey']}": rule["labelSelector"]["matchLabels"]
           for rule in apart + pod["topologySpreadConstraints"]},
    }
    for what, selector in selectors.items():
        check(selector.items() <= labels.items(), f"the {what} misses the masters")
    check(service["metadata"]["name"] == spec["serviceName"], "serviceName names no Service")
    check(service["spec"].get("clusterIP") == "None", "one address leads to all masters")
    check(service["spec"].get("publishNotReadyAddresses"), "no client reaches a master in quarantine")
    check(budget["maxUnavailable"] == 1, "a drain may take more than one master")
    ready_after = server["readinessProbe"].get("initialDelaySeconds", 0)
    check(ready_after >= ADDRESS + QUARANTINE, "a master is ready before it votes")
    check(spec.get("minReadySeconds", 0) >= MAX_TTL, "a rollout goes on before leases stand on the master again")

    namespace = masters["metadata"]["namespace"]
    hosts = [f"{name}-{i}.{spec['serviceName']}.{namespace}.svc" for i in range(spec["replicas"])]
    urls = nodes["stringData"]["nodes"].split()
    check([re.sub(r".*@(.*):6379$", r"\1", url) for url in urls] == hosts, "the URLs do not name each master once")
    conf = kinds["ConfigMap", name]["data"]["master.conf"]
    for line in ["maxmemory-policy noeviction", "protected-mode no", "aclfile /etc/quorate/users.acl", "port 6379"]:
        check(line in conf.splitlines(), f"master.conf lacks: {line}")

    documented = pathlib.Path("src/docs/operations.md").read_text().split("ACL SETUSER quorate ")[1].split("```")[0]
    users = kinds["Secret", name]["stringData"]["users.acl"].splitlines()
    [user] = [line.removeprefix("user quorate ") for line in users if line.startswith("user quorate ")]
    check(user.replace("CHANGE-ME", "SECRET").split() == documented.split(), "the ACL is not that of operations.md")


def check_crontab(path):
    check(re.fullmatch(r"[\w-]+", path.name), f"cron ignores a file called {path.name}")
    text = path.read_text()
    check(text.endswith("\n"), "cron ignores a last line without an end")
    number = r"\d+(-\d+(/\d+)?)?|\*(/\d+)?"
    jobs = 0
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#") or re.match(r"\w+\s*=", line):
            continue
        words = line.split(None, 6)
        check(len(words) == 7, f"crontab: five fields, a user and a command: {line}")
        for field, (low, high) in zip(words, [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]):
            for part in field.split(","):
                is_right = re.fullmatch(number, part) and all(
                    low <= int(n) <= high for n in re.findall(r"\d+", part.split("/")[0]))
                check(is_right, f"crontab: {field!r} in: {line}")
        check(re.fullmatch(r"[a-z_][a-z0-9_-]*", words[5]), f"crontab: {words[5]!r} is not a user: {line}")
        check(not re.search(r"(?<!\\)%", words[6]), f"crontab: a % ends the command, write \\%: {line}")
        parsed = subprocess.run(["sh", "-n", "-c", words[6]], check=False, capture_output=True, text=True)
        check(parsed.returncode == 0, f"crontab: {parsed.stderr.strip()}: {line}")
        jobs += 1
    check(jobs, "crontab: there is no job")


def check_units():
    """Each service reads the one configuration file, from a copy that its user can read."""
    nodes = tomllib.loads((recipes / "quorate.toml").read_text())["nodes"]
    check(len(nodes) == len(set(nodes)) == 3, "quorate.toml does not name three servers")
    services = list(recipes.glob("systemd/*.service"))
    check(len(services) == 2, f"there are {len(services)} services")
    for path in services:
        lines = path.read_text().splitlines()
        check("LoadCredential=quorate.toml:/etc/quorate.toml" in lines, f"{path}: it gets no copy of the file")
        check("Environment=QUORATE_CONFIG=%d/quorate.toml" in lines, f"{path}: QUORATE_CONFIG is not the copy")


def check_options():
    """Each option of `quorate` is one that the command has."""
    known = "".join(path.read_text() for path in pathlib.Path("cli/src/args").glob("*.rs"))
    seen = 0
    for path in [*recipes.glob("systemd/*.service"), *recipes.glob("kubernetes/*.yaml"), *recipes.glob("cron/*")]:
        for line in path.read_text().splitlines():
            if line.startswith("#") or "quorate" not in line:
                continue
            for option in re.findall(r"(?<!\S)--([a-z][a-z-]+)", line):
                seen += 1
                check(re.search(rf"\b{option.replace('-', '_')}: ", known), f"quorate has no --{option}: {path}")
    check(seen > 5, f"only {seen} options were found")


for file in sorted((recipes / "kubernetes").glob("*.yaml")):
    for document in manifests(file.name):
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            check_workload(f"{file.name}: {document['metadata']['name']}", spec)
check_masters(manifests("masters.yaml"))
for file in (recipes / "cron").iterdir():
    check_crontab(file)
check_units()
check_options()
