#!/usr/bin/env bash
# train_gpt on several ranks: a checkpoint of one rank is, byte for byte, that of 2 and 4, sharded moments
# or not, at once or resumed on another number of them; and what goes wrong on one is an error on all.
launcher=$2
source "$(dirname "$0")/command_line.sh" "$1"

seq 20000 >text
small=(--text text --layers 2 --heads 2 --channels 16 --context 16 --batch 2 --threads 1 --lr 1e-2
       --clip 0.5 --policy mixed --rank-limit 20)

# on RANKS ARGS...
on() {
  "$launcher" -np "$1" "$program" "${small[@]}" "${@:2}" >out 2>err
}

"$program" "${small[@]}" --seed 3 --shards 4 --micro 2 --steps 4 --save one >out 2>err ||
  complain "one rank: $(cat err)"
grep -q 'ranks  *1 rank, an update of 4 shards' out || complain "one rank says: $(cat out)"
for ranks in 2 4; do
  for more in "" --shard-moments; do
    rm -f many
    # shellcheck disable=SC2086  # one word or none
    on "$ranks" --seed 3 --shards 4 --micro 2 --steps 4 --save many $more || complain "$(cat err)"
    cmp one many || complain "$ranks ranks $more have another checkpoint than one"
  done
done

on 4 --seed 3 --shards 4 --micro 2 --steps 2 --save part --shard-moments || complain "$(cat err)"
on 2 --resume part --steps 3 --save part || complain "$(cat err)"
"$program" --resume part --threads 1 --steps 4 --save part >out 2>err || complain "$(cat err)"
cmp one part || complain "a run on 4, 2 and 1 ranks has another checkpoint than one on 1"

# fails WORDS -- ARGS...: on two ranks, the second of which has --seed 4.
fails() {
  local words=$1
  shift 2
  "$launcher" -np 1 "$program" "${small[@]}" --steps 2 --seed 3 "$@" \
    : -np 1 "$program" "${small[@]}" --steps 2 --seed 4 "$@" >out 2>err
  [ $? -eq 2 ] || complain "status $?, not 2: $*"
  [ "$(grep -cF "$words" err)" -ge 2 ] || complain "not both ranks say '$words': $(cat err)"
}
fails 'the ranks disagree on the seed: rank 0 has 3, rank 1 4' --
fails '6 shards cannot be dealt to 2 ranks' -- --shards 6
fails 'nothere: cannot be opened' -- --text nothere
fails 'nothere' -- --resume nothere

# One that hangs is given up, and one that is killed, too: nobody is left.
for signal in STOP KILL; do
  "$launcher" -np 2 "$program" "${small[@]}" --seed 3 --steps 100000000 --rank-limit 1 --log log >out 2>err &
  launched=$!
  for _ in $(seq 100); do [ -s log ] && break; sleep 0.1; done
  children=($(ps -o pid= --ppid "$launched"))
  kill -"$signal" "${children[1]}"
  if [ "$signal" = STOP ]; then
    for _ in $(seq 100); do grep -q 'not heard of' err out && break; sleep 0.1; done
    grep -qs 'rank 0 waited 1000 ms to .* rank 1, which was not heard of' err out ||
      complain "no word of a rank that hangs: $(cat err)"
    kill -CONT "${children[1]}" 2>/dev/null
  fi
  wait "$launched" && complain "status 0 after a rank got $signal"
  rm -f log
done
explains shards shard-moments rank-limit
finish
