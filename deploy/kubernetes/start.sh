# One pod of the indexed Job (job.yaml): each is a worker, and index 0 runs the supervisor beside it.
# SIGTERM (a pod that is deleted) drains the run at index 0; elsewhere the worker leaves.
set -u
if [ "$JOB_COMPLETION_INDEX" != 0 ]; then
  exec taut worker "$@"
fi

# A signal ends wait early: wait again while the process is there.
ended() {
  while :; do
    wait "$1"
    code=$?
    kill -0 "$1" 2> /dev/null || return "$code"
  done
}

taut supervisor --workers "$TAUT_WORKERS" --port "${TAUT_SUPERVISOR##*:}" --keys "$TAUT_KEYS_FILE" &
supervisor=$!
trap 'kill -TERM "$supervisor"' TERM INT
taut worker "$@" &
worker=$!
ended "$worker"
worked=$?
ended "$supervisor" || exit
exit "$worked"
