#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two hosts on one machine: network namespaces that a pair of virtual links connects, with two ranks in
# each. Over TCP they leave the checkpoint of one rank, byte for byte.
#
#     bash tests/mpi/hosts.sh build/quick/examples/train_gpt [mpirun]
#
# Needs iproute2 and Open MPI, and to be root or allowed to make namespaces of its own; everything that it
# makes is in these, and gone with it. Exit status 77 says in words what is missing or was refused.
skip() {
  echo "skipped: $*"
  exit 77
}

# As the launcher's remote shell: HOST COMMAND..., in that host's namespace and under its name.
if [ "$1" = --host ]; then
  host=$2
  shift 2
  exec ip netns exec "host${host##*.}" unshare --uts \
    sh -c 'hostname "host${0##*.}" && exec sh -c "$*"' "$host" "$@"
fi

self=$(realpath "$0") program=$(realpath "$1") launcher=${2:-mpirun}
hosts=(10.77.0.1 10.77.0.2)
if [ "$ADACC_HOSTS" != inside ]; then
  command -v ip >/dev/null || skip "there is no ip (apt-get install iproute2)"
  command -v "$launcher" >/dev/null || skip "there is no $launcher"
  private=(unshare --mount --net --uts --pid --fork --kill-child)
  [ "$(id -u)" -eq 0 ] || private+=(--user --map-root-user)
  why=$("${private[@]}" true 2>&1) || skip "no namespaces of our own: $why"
  ADACC_HOSTS=inside exec "${private[@]}" bash "$0" "$@"
fi

why=$(mount -t tmpfs none /run 2>&1 && mount -t proc none /proc 2>&1) || skip "no /run of our own: $why"
make_hosts() {
  ip netns add host1 && ip netns add host2 &&
    ip link add link1 type veth peer name link2 || return
  local i
  for i in 1 2; do
    ip link set "link$i" netns "host$i" && ip -n "host$i" addr add "${hosts[i - 1]}/24" dev "link$i" &&
      ip -n "host$i" link set "link$i" up && ip -n "host$i" link set lo up || return
  done
}
why=$(make_hosts 2>&1) || skip "no network of two hosts: $why"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
seq 20000 >text
printf '#!/bin/sh\nexec bash %q --host "$@"\n' "$self" >remote
chmod +x remote
run=("$program" --text "$folder/text" --layers 2 --heads 2 --channels 16 --context 16 --batch 2 --threads 1
     --lr 1e-2 --clip 0.5 --policy mixed --rank-limit 20 --seed 3 --shards 4 --steps 4)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=$folder/remote
# on_hosts ARGS...: the first host's ranks are 0 and 1, the second's 2 and 3.
on_hosts() {
  ./remote "${hosts[0]}" "$launcher" --host "${hosts[0]}:2,${hosts[1]}:2" -np 4 --map-by slot \
    --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
    --mca orte_keep_fqdn_hostnames 1 "$@"
}
sent() { ip netns exec host1 cat /sys/class/net/link1/statistics/tx_bytes; }

failures=0
complain() {
  echo "$*"
  failures=$((failures + 1))
}
"${run[@]}" --save one >out 2>&1 || complain "one rank: $(cat out)"
on_hosts hostname >out 2>&1
[ "$(sort out | uniq -c | awk '{print $1 $2}' | tr '\n' ' ')" = '2host1 2host2 ' ] ||
  complain "ranks are not on two hosts: $(cat out)"
for more in '' --shard-moments --shard-gradients; do
  before=$(sent)
  # shellcheck disable=SC2086  # one word or none
  on_hosts "${run[@]}" --save "$folder/many" $more >out 2>&1 || complain "4 ranks $more: $(cat out)"
  if ! cmp one many; then
    complain "4 ranks on two hosts $more have another checkpoint than one"
    continue
  fi
  echo "4 ranks on 2 hosts $more: $(($(sent) - before)) bytes from the first to the second, checkpoint as one rank's"
  rm -f many
done
stages=("$program" --text "$folder/text" --layers 4 --heads 2 --channels 16 --context 16 --batch 2
        --micro 4 --threads 1 --lr 1e-2 --steps 2 --tolerance 0 --rank-limit 20)
"${stages[@]}" --pipeline 1 --save one >out 2>&1 || complain "one stage: $(cat out)"
on_hosts "${stages[@]}" --pipeline 4 --save "$folder/many" >out 2>&1 || complain "4 stages: $(cat out)"
cmp one many || complain "4 stages on two hosts have another checkpoint than one"
[ "$failures" -eq 0 ]
