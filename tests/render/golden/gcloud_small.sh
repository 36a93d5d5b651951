#!/usr/bin/env bash
# Made by `paceline render gcloud`. Creates the machines of the job. Run it with: bash FILE
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

# The job's secret; from a file, so that it is on no command line.
(umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$folder/paceline-secret")

cat > "$folder/startup.sh" <<'END_OF_STARTUP_SCRIPT'
#!/bin/bash
set -euo pipefail

# Who this machine is: the number at the end of its name.
metadata() {
    curl --fail --silent --show-error --retry 10 --retry-connrefused --header 'Metadata-Flavor: Google' \
        "http://metadata.google.internal/computeMetadata/v1/instance/$1"
}
name=$(metadata name)
node_rank=${name##*-}
id -u paceline > /dev/null 2>&1 || useradd --create-home --shell /bin/bash paceline

install --directory --owner=paceline --mode=700 /run/paceline
metadata attributes/paceline-secret | install --owner=paceline --mode=600 /dev/stdin /run/paceline/secret

if [ ! -x /opt/paceline/bin/paceline ]; then
    # Debian and Ubuntu ship Python without the part that makes virtual environments.
    if ! python3 -c 'import ensurepip'; then
        apt-get update --quiet
        DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes python3-venv
    fi
    python3 -m venv --clear /opt/paceline
    /opt/paceline/bin/pip install --quiet 'paceline[cpu]'
fi
export PATH=/opt/paceline/bin:$PATH

install --directory --owner=paceline /home/paceline/job
gcloud storage rsync --recursive gs://my-bucket/my-code /home/paceline/job
chown --recursive paceline: /home/paceline/job
cd /home/paceline/job

(umask 077 && cat > /opt/paceline-job) <<'END_OF_JOB'
export PATH=/opt/paceline/bin:$PATH
export PACELINE_SECRET_FILE=/run/paceline/secret
exec paceline run --node-rank "$1" --workers 2 --nnodes 2 --rendezvous train-0:29400 --start-timeout 1800 train.py --epochs 3
END_OF_JOB
chmod 700 /opt/paceline-job
chown paceline: /opt/paceline-job
systemd-run --unit=paceline --collect --uid=paceline --working-directory=/home/paceline/job \
    --property=KillMode=mixed --property=TimeoutStopSec=25 \
    /bin/bash /opt/paceline-job "$node_rank"
echo "paceline: node $node_rank has started; follow it with: journalctl --unit=paceline --follow"
END_OF_STARTUP_SCRIPT

gcloud compute instances create train-0 train-1 \
    --zone=us-central1-a \
    --machine-type=n2-standard-8 \
    --image-family=debian-12 \
    --image-project=debian-cloud \
    --boot-disk-size=100GB \
    --scopes=storage-rw,logging-write,monitoring-write \
    --tags=train \
    --metadata-from-file="startup-script=$folder/startup.sh,paceline-secret=$folder/paceline-secret"
