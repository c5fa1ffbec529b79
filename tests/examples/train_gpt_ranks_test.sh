#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
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
esc=$'\e'
for ranks in 2 4; do
  for more in "" --shard-moments; do
    rm -f many
    # shellcheck disable=SC2086  # one word or none
    on "$ranks" --seed 3 --shards 4 --micro 2 --steps 4 --save many $more || complain "$(cat err)"
    cmp one many || complain "$ranks ranks $more have another checkpoint than one"
    grep -q "$esc" out && complain "a progress bar goes to a file: $(cat -v out)"
  done
done

# With sharded gradients a shard is one batch; resumed without, it is the same run.
"$program" "${small[@]}" --seed 3 --shards 8 --steps 4 --save single >out 2>err || complain "$(cat err)"
for ranks in 2 4; do
  on "$ranks" --seed 3 --shards 8 --steps 4 --save many --shard-gradients || complain "$(cat err)"
  grep -q 'moments and gradients sharded' out || complain "sharded gradients are said to be: $(cat out)"
  cmp single many || complain "$ranks ranks with sharded gradients have another checkpoint than one"
done
on 2 --shards 4 --micro 2 --shard-gradients && complain "shards of 2 batches"
grep -q 'let each be one micro-batch, and the update have 8 of them' err || complain "micro: $(cat err)"
# Within a total that whole moments and gradients are too large for: what is held is what was promised.
bytes() { sed -n "s/^$1  *\([0-9]*\) bytes.*/\1/p" out; }
on 4 --policy auto --shards 4 --steps 1 --shard-gradients --total 1MiB && complain "1 MiB was enough"
least=$(sed -n 's/.*the least known is [^(]*(\([0-9]*\) bytes).*/\1/p' err | sort -n | tail -n 1)
on 4 --policy auto --shards 4 --steps 1 --total "${least}B" && complain "$least bytes are enough without sharding"
on 4 --policy auto --shards 4 --steps 1 --shard-gradients --total "${least}B" || complain "$(cat err)"
[ "$(bytes 'in all')" -le "$least" ] || complain "more is held than --total $least: $(cat out)"

on 4 --seed 3 --shards 4 --micro 2 --steps 2 --save part --shard-moments || complain "$(cat err)"
on 2 --resume part --steps 3 --save part || complain "$(cat err)"
"$program" --resume part --threads 1 --steps 4 --save part >out 2>err || complain "$(cat err)"
cmp one part || complain "a run on 4, 2 and 1 ranks has another checkpoint than one on 1"

# A plan that is made here evolves on several ranks as on one, and goes on with the run: without lossy codecs
# no loss notices. Another budget is met by all.
losses() { sed 's/.*"loss":\([^,]*\),.*/\1/' "$1"; }
auto=("${small[@]}" --policy auto --tolerance 0 --shards 4 --budget 80%)
"$program" "${auto[@]}" --steps 30 --log whole.log >out 2>err || complain "one rank with auto: $(cat err)"
"$launcher" -np 4 "$program" "${auto[@]}" --steps 20 --log half.log --save half >out 2>err || complain "$(cat err)"
grep -q 'costs  *measured' out || complain "costs of ranks: $(cat out)"
grep -q 'one for all ranks' out || complain "the plan of ranks: $(cat out)"
"$launcher" -np 2 "$program" --resume half --threads 1 --rank-limit 20 --budget 100% --steps 30 --log half.log \
  >out 2>err || complain "$(cat err)"
grep -q 'costs  *those of the checkpoint' out || complain "costs of resumed ranks: $(cat out)"
grep -q '^plan  *activation .*: recompute -> retain, budget changed' out || complain "another budget: $(cat out)"
grep -q '"plan_version":2' half.log || complain "the log of a plan that changed: $(tail -n 1 half.log)"
cmp <(losses whole.log) <(losses half.log) || complain "ranks whose plan evolves have other losses than one"

# fails WORDS -- ARGS...: on two ranks, the second of which has --seed 4.
fails() {
  local words=$1
  shift 2
  "$launcher" -np 1 "$program" "${small[@]}" --steps 2 --seed 3 "$@" \
    : -np 1 "$program" "${small[@]}" --steps 2 --seed 4 "$@" >out 2>err
  [ $? -eq 2 ] || complain "status $?, not 2: $*"
  [ "$(grep -cF "$words" err)" -ge 2 ] || complain "not both ranks say '$words': $(cat err)"
}
fails 'the ranks disagree on the option --seed: rank 0 has 3, rank 1 4' --
differ() {  # WORDS A B: on two ranks, one with the option A, the other with B
  # shellcheck disable=SC2086  # two words
  "$launcher" -np 1 "$program" "${small[@]}" --steps 2 $2 : -np 1 "$program" "${small[@]}" --steps 2 $3 \
    >out 2>err
  [ $? -eq 2 ] || complain "status $?, not 2: $2 and $3"
  [ "$(grep -cF "$1" err)" -ge 2 ] || complain "not both ranks say '$1': $(cat err)"
}
seq 30000 >other_text
"$program" "${small[@]}" --shards 2 --steps 3 --save step3 >out 2>err || complain "$(cat err)"
"$program" --resume step3 --threads 1 --steps 5 --save step5 >out 2>err || complain "$(cat err)"
on='the ranks disagree on the'
differ "$on option --lr: rank 0 has 0.01, rank 1 0.02" '--lr 1e-2' '--lr 2e-2'
differ "$on start of the run: rank 0 has no checkpoint, rank 1 a checkpoint of step 3" '' '--resume step3'
differ "$on start of the run: rank 0 has a checkpoint of step 3, rank 1 no checkpoint" '--resume step3' ''
differ "$on start of the run: rank 0 has a checkpoint of step 3, rank 1 a checkpoint of step 5" \
  '--resume step3 --steps 8' '--resume step5 --steps 8'
differ "$on text: rank 0 has 108894 tokens with checksum " '' '--text other_text'
differ "$on option --save: rank 0 has none, rank 1 one" '' '--save one'
while read -r option one other; do
  differ "$on option $option: rank 0 has $one, rank 1 $other" "$option $one" "$option $other"
done <<'end'
--policy mixed recompute
--steps 2 3
--micro 1 2
--clip-by step previous
--warmup 0 3
--moments fp32 int8
--weight-decay 0 0.1
end
differ '6 shards cannot be dealt to 2 ranks' '--shards 6' '--shards 6'
fails 'nothere: cannot be opened' -- --text nothere
fails 'nothere' -- --resume nothere

# A pipeline: whatever the number of stages, and whatever memory each has, the losses are those of one.
staged=(--text text --layers 4 --heads 2 --channels 16 --context 16 --batch 2 --micro 4 --threads 1 --lr 1e-2
        --clip 0.5 --steps 4 --tolerance 0 --rank-limit 20)
"$program" "${staged[@]}" --pipeline 1 --log whole >out 2>err || complain "one stage: $(cat err)"
for ranks in 2 4; do
  for more in "" "--total 300KiB"; do
    # shellcheck disable=SC2086  # no word or two
    "$launcher" -np "$ranks" "$program" "${staged[@]}" --pipeline "$ranks" $more --log staged >out 2>err ||
      complain "$ranks stages $more: $(cat err)"
    [ "$(grep -c '^  stage' out)" -eq "$ranks" ] || complain "$ranks stages are said to be: $(cat out)"
    cmp <(losses whole) <(losses staged) || complain "$ranks stages $more have other losses than one"
    grep -q 'costs  *measured in .* gradient errors of codecs estimated' out || complain "costs: $(cat out)"
    [ "$(grep -c 'speed [01]\.[0-9]*, measured' out)" -eq "$ranks" ] || complain "no speeds: $(cat out)"
    grep -q 'step, predicted and measured  *[0-9.]* ms and [0-9.]* ms' out || complain "steps: $(cat out)"
  done
done
[ "$(losses whole | wc -l)" -eq 4 ] || complain "the log of a pipeline has not 4 losses"
"$launcher" -np 4 "$program" "${staged[@]}" --pipeline 4 --total 300KiB --fixed-costs --log staged >out 2>err ||
  complain "estimated costs: $(cat err)"
grep -q 'costs  *estimated' out || complain "estimated costs: $(cat out)"
grep -q recompute out || complain "300 KiB a rank were enough to retain everything: $(cat out)"
cmp <(losses whole) <(losses staged) || complain "4 stages by estimated costs have other losses than one"
"$program" "${staged[@]}" --precision bf16 --pipeline 1 --log halves >out 2>err || complain "bf16: $(cat err)"
"$launcher" -np 2 "$program" "${staged[@]}" --precision bf16 --pipeline 2 --log staged >out 2>err ||
  complain "2 stages in bf16: $(cat err)"
cmp <(losses halves) <(losses staged) || complain "2 stages in bf16 have other losses than one"
cmp -s <(losses halves) <(losses whole) && complain "losses of bf16 are those of fp32"
"$launcher" -np 2 "$program" "${staged[@]}" --pipeline 3 >out 2>err && complain "3 stages on 2 ranks"
grep -q 'pipeline 3 takes as many ranks (mpirun -np 3), and there are 2' err || complain "3 stages: $(cat err)"
"$launcher" -np 2 "$program" "${staged[@]}" --pipeline 2 --total 1KiB >out 2>err && complain "a stage of 1 KiB"
grep -q 'stage 0 of 2 does not fit' err || complain "1 KiB: $(cat err)"
for option in '--val text' '--shards 2' '--lora 2' '--fused' '--parameters bf16'; do
  # shellcheck disable=SC2086  # two words
  "$program" "${staged[@]}" --pipeline 1 $option >out 2>err && complain "--pipeline with $option"
  grep -q -- "${option%% *} does not go with --pipeline" err || complain "$option: $(cat err)"
done

# Its checkpoint is of the whole network: the same bytes of any number of stages, at once or one after
# the other, and the numbers of one rank that adds as many batches in one shard.
saves=("${staged[@]}" --total 300KiB)
"$program" "${staged[@]}" --pipeline 1 --save whole >out 2>err || complain "$(cat err)"
for ranks in 2 4; do
  "$launcher" -np "$ranks" "$program" "${saves[@]}" --pipeline "$ranks" --save many >out 2>err ||
    complain "$(cat err)"
  cmp whole many || complain "$ranks stages have another checkpoint than one"
done
"$launcher" -np 4 "$program" "${saves[@]}" --pipeline 4 --steps 2 --save part >out 2>err || complain "$(cat err)"
cp part half
"$launcher" -np 2 "$program" --resume part --threads 1 --pipeline 2 --steps 4 --save part >out 2>err ||
  complain "$(cat err)"
cmp whole part || complain "a run in 4 and 2 stages has another checkpoint than one in 1"
grep -q 'resumed  *part, after step 2' out || complain "a resumed pipeline says: $(cat out)"
"$program" "${staged[@]}" --untied-head --shards 1 --save one >out 2>err || complain "$(cat err)"
size=$(($(bytes parameters) + $(bytes moments)))
numbers() { tail -c $((size + 8)) "$1" | head -c "$size"; }
cmp <(numbers whole) <(numbers one) || complain "a pipeline has other numbers than one rank"
"$program" --resume half --threads 1 --steps 4 --save half >out 2>err || complain "$(cat err)"
cmp <(numbers whole) <(numbers half) || complain "one rank goes on from a pipeline's checkpoint otherwise"
"$program" "${staged[@]}" --untied-head --shards 1 --steps 2 --save half >out 2>err || complain "$(cat err)"
"$launcher" -np 2 "$program" --resume half --threads 1 --pipeline 2 --steps 4 --save half >out 2>err ||
  complain "$(cat err)"
cmp whole half || complain "a pipeline goes on from one rank's checkpoint otherwise"
# Moments in 8 bits are rounded as on one rank, and resumed in either place.
eighths=("${staged[@]}" --moments int8)
"$program" "${eighths[@]}" --untied-head --shards 1 --save one >out 2>err || complain "$(cat err)"
size=$(($(bytes parameters) + $(bytes moments)))
"$launcher" -np 2 "$program" "${eighths[@]}" --pipeline 2 --steps 2 --save half >out 2>err || complain "$(cat err)"
[ "$(bytes moments)" -lt "$(($(bytes parameters) * 3 / 4))" ] || complain "moments in 8 bits: $(cat out)"
"$program" --resume half --threads 1 --steps 3 --save half >out 2>err || complain "$(cat err)"
"$launcher" -np 2 "$program" --resume half --threads 1 --pipeline 2 --steps 4 --save half >out 2>err ||
  complain "$(cat err)"
cmp <(numbers one) <(numbers half) || complain "moments in 8 bits of 2 stages are not those of one rank"
"$launcher" -np 1 "$program" "${staged[@]}" --pipeline 2 : -np 1 "$program" "${staged[@]}" --pipeline 2 \
  --steps 6 >out 2>err && complain "stages that train for 4 and for 6 steps"
[ "$(grep -cF "$on option --steps: rank 0 has 4, rank 1 6" err)" -eq 2 ] || complain "4 and 6 steps: $(cat err)"
stages_fail() {  # WORDS ARGS...: on both ranks
  "$launcher" -np 2 "$program" --threads 1 --pipeline 2 --rank-limit 20 "${@:2}" >out 2>err &&
    complain "a pipeline with ${*:2}"
  grep -qF -- "$1" err || complain "${*:2}: $(cat err)"
}
stages_fail 'is of a run with --shards, which does not go with --pipeline' --resume single --steps 5
stages_fail 'this model is' --resume whole --text text --layers 2 --heads 2 --channels 16 --context 16
stages_fail 'nothere' --text text --layers 2 --heads 2 --channels 16 --context 16 --save nothere/run

# One that hangs is given up, and one that is killed, too: nobody is left.
for case in 'STOP small' 'KILL small' 'STOP staged'; do
  signal=${case% *}
  if [ "$case" = 'STOP staged' ]; then run=("${staged[@]}" --pipeline 2); else run=("${small[@]}"); fi
  "$launcher" -np 2 "$program" "${run[@]}" --seed 3 --steps 100000000 --rank-limit 1 --log log >out 2>err &
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
  wait "$launched" && complain "status 0 after a rank of '$case' got the signal"
  rm -f log
done
# What ranks divide is not divided by one.
refuses --shard-moments 'start several' -- --text text --steps 1 --shard-moments
refuses --shard-gradients 'start several' -- --text text --steps 1 --shard-gradients
explains shards shard-moments shard-gradients rank-limit pipeline untied-head
finish
