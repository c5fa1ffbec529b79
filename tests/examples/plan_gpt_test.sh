#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# plan_gpt as a user meets it: its numbers agree with each other, and bad input gets one clear line.
source "$(dirname "$0")/command_line.sh" "$1"
plan_gpt=$program

# number KEY: its value in the JSON object in `out`.
number() {
  sed -n 's/.*"'"$1"'": *\([^,} ]*\).*/\1/p' out
}

shape=(--layers 6 --heads 6 --channels 384 --seq 256 --batch 4 --vocab 256 --threads 2)
for budget in 100% 50% 30% 40MiB; do
  "$plan_gpt" "${shape[@]}" --budget "$budget" --json >out 2>err || complain "$budget: $(cat err)"
  awk -v peak="$(number peak_bytes)" -v budget="$(number budget_bytes)" \
      -v smallest="$(number smallest_peak_bytes)" -v retain="$(number retain_peak_bytes)" \
      -v gap="$(number gap)" -v ms="$(number predicted_ms)" -v retain_ms="$(number retain_ms)" \
      'BEGIN { exit !(peak > 0 && peak <= budget && smallest <= peak && peak <= retain &&
                      gap >= 0 && gap <= 0.005 && ms >= 0.999 * retain_ms) }' ||
    complain "$budget: numbers do not fit: $(cat out)"
  # One policy for each of the 2 + 6 * 8 activations.
  sum=$(sed -n '/"policies"/,/}/p' out | sed -n 's/.*": *\([0-9][0-9]*\),*$/\1/p' |
        awk '{ sum += $1 } END { print sum }')
  [ "$sum" = 50 ] || complain "$budget: $sum policies, not 50"
done

# The smallest budget is one that a plan fits, and one byte less is not.
smallest=$(number smallest_peak_bytes)
"$plan_gpt" "${shape[@]}" --budget "${smallest}B" --json >out 2>err || complain "smallest: $(cat err)"
refuses "$smallest" -- "${shape[@]}" --budget "$((smallest - 1))B"

# Activations in bf16 take half the bytes; parameters remain in full.
"$plan_gpt" "${shape[@]}" --budget 100% --json >out 2>err || complain "fp32: $(cat err)"
retain=$(number retain_peak_bytes) parameters=$(number parameter_bytes)
"$plan_gpt" "${shape[@]}" --budget 100% --precision bf16 --json >out 2>err || complain "bf16: $(cat err)"
awk -v full="$retain" -v half="$(number retain_peak_bytes)" -v before="$parameters" \
    -v parameters="$(number parameter_bytes)" \
    'BEGIN { exit !(half > 0.48 * full && half < 0.53 * full && parameters == before) }' ||
  complain "--precision bf16: $(cat out)"
"$plan_gpt" "${shape[@]}" --budget 30% --precision bf16 >out 2>err || complain "bf16: $(cat err)"
grep -q '4 x 256 tokens, activations in bf16' out || complain "bf16: $(cat out)"
refuses --precision --total-picture -- "${shape[@]}" --precision bf16 --total-picture picture.svg

# Where activations may be recomputed several times, a deep model fits into less.
deep=(--layers 16 --heads 4 --channels 64 --vocab 64 --seq 32 --batch 1 --tolerance 0)
"$plan_gpt" "${deep[@]}" --budget 100% --json >out 2>err || complain "deep: $(cat err)"
once=$(number smallest_peak_bytes)
"$plan_gpt" "${deep[@]}" --budget 100% --most-runs 4 --json >out 2>err || complain "runs: $(cat err)"
[ "$(number smallest_peak_bytes)" -lt "$once" ] || complain "4 runs need as much as 1: $once"
refuses --most-runs '1 to 8' -- "${shape[@]}" --most-runs 9
refuses --most-runs --parts -- "${shape[@]}" --most-runs 2 --parts 2
refuses --most-runs --link -- "${shape[@]}" --most-runs 2 --link 1

# Who plans can be chosen, and is named. Without lp_solve in the program, that is refused in words.
"$plan_gpt" "${shape[@]}" --budget 30% --solver search --json >out 2>err || complain "search: $(cat err)"
grep -q '"solver": "chain"' out || complain "not by the search: $(cat out)"
if "$plan_gpt" "${shape[@]}" --budget 30% --solver lp_solve --json >out 2>err; then
  grep -q '"solver": "lp_solve"' out || complain "not by lp_solve: $(cat out)"
else
  grep -q 'adacc::lp_solve' err || complain "lp_solve: $(cat err)"
fi
refuses --solver -- "${shape[@]}" --solver cplex

# Far larger than any machine: 96 layers, 12288 channels.
"$plan_gpt" --layers 96 --heads 96 --channels 12288 --seq 2048 --batch 32 --budget 30% \
  --svg plan.svg >out 2>err || complain "a large model: $(cat err)"
grep -q 'gap to the best possible' out || complain "no table: $(cat out)"
head -c 4 plan.svg | grep -q '<svg' || complain "no picture"
tail -n 1 plan.svg | grep -q '</svg>' || complain "a cut-off picture"

# Loops are counted and drawn: a bar for each, of what they save, and what holds one part is lighter.
bars() { sed -n "/<g class='loops'>/,/<\/g>/p" "$1" | grep -c '<rect'; }
"$plan_gpt" "${shape[@]}" --parts 4 --budget 15% --json --svg looped.svg >out 2>err || complain "--parts: $(cat err)"
awk -v loops="$(number loops)" -v inside="$(number loop_instructions)" -v tiles="$(number part_buffers)" \
    -v peak="$(number peak_bytes)" -v straight="$(number peak_without_loops_bytes)" \
    'BEGIN { exit !(loops > 6 && inside >= 2 * loops && tiles > 6 && straight > 1.1 * peak) }' ||
  complain "loops: $(cat out)"
awk -v once="$(number packed_once)" -v calls="$(number packing_calls)" \
    'BEGIN { exit !(0 < once && once < calls) }' || complain "packed weights: $(cat out)"
[ "$(bars looped.svg)" -eq "$(number loops)" ] || complain "$(bars looped.svg) bars for $(number loops) loops"
for drawn in 'in 4 parts</title>' '>loops of 4 parts<' '>one part<' '>without loops<' '>no loops [0-9.]* MiB<' \
  "<path fill='#a9c4df'" "<path fill='#fad0a2'"; do
  grep -q "$drawn" looped.svg || complain "no $drawn in the picture of loops"
done
[ "$(wc -c <looped.svg)" -lt 100000 ] || complain "the picture of loops has $(wc -c <looped.svg) bytes"
straight=$(number peak_without_loops_bytes)
"$plan_gpt" "${shape[@]}" --parts 4 --budget 15% >out 2>err || complain "--parts: $(cat err)"
grep -q "without loops .* $(awk "BEGIN { printf \"%.1f\", $straight / 1048576 }") MiB" out ||
  complain "the table does not say what loops save: $(cat out)"
grep -q 'weights packed once .* of [0-9]* calls in parts' out || complain "nothing of packed weights: $(cat out)"
grep -q 'loops over rows .* of 4 parts: ' out || complain "the table does not count loops: $(cat out)"
# Nothing of it where layers are whole.
"$plan_gpt" "${shape[@]}" --budget 30% --json --svg whole.svg >out 2>err || complain "30 %: $(cat err)"
[ "$(number loops) $(number loop_instructions) $(number part_buffers)" = '0 0 0' ] &&
  [ "$(number peak_bytes)" = "$(number peak_without_loops_bytes)" ] || complain "loops of whole layers: $(cat out)"
for drawn in loops 'one part' '#a9c4df' '#fad0a2' 'in the store' '>computation<' '>link<'; do
  grep -q "$drawn" whole.svg && complain "$drawn in the picture of whole layers without a store"
done
# With a store: what is in it, both lanes, what goes out and comes back, and waits in red.
"$plan_gpt" "${shape[@]}" --budget 20% --tolerance 0 --link 0.3 --json --svg sent.svg >out 2>err ||
  complain "--link: $(cat err)"
awk "BEGIN { exit !($(number offload_written_bytes) > 0 && $(number offload_stall_ms) > 1) }" ||
  complain "nothing is sent, or nothing waits: $(cat out)"
for drawn in '>in the store<' '>computation<' '>link<' '>waiting<' '>0 ms<'; do
  grep -q "$drawn" sent.svg || complain "no $drawn in the picture with a store"
done
grep -q "stroke='#7b3294' d='M.*V.*V" sent.svg || complain "no line of what is in the store"
for kind in write read; do  # two stretches at least
  [ "$(grep -c "<title>${kind}_begin" sent.svg)" -gt 1 ] || complain "no ${kind}s on the link"
done
[ "$(grep -c "fill='#c00'><title>.*_wait" sent.svg)" -gt 1 ] || complain "no waits in the lane of computation"

# What is frozen costs less: of retain's bytes, of its time, and under a budget.
"$plan_gpt" "${shape[@]}" --budget 100% --json >out 2>err || complain "all of it: $(cat err)"
all=$(number retain_peak_bytes) all_ms=$(number retain_ms)
less() {  # less PER_CENT OPTION...: of the peak of training all of it
  local most=$1; shift
  "$plan_gpt" "${shape[@]}" "$@" --budget 50% --json >out 2>err || complain "$*: $(cat err)"
  awk -v all="$all" -v most="$most" -v ms="$(number retain_ms)" -v all_ms="$all_ms" \
      -v retain="$(number retain_peak_bytes)" -v peak="$(number peak_bytes)" \
      'BEGIN { exit !(retain * 100 <= most * all && peak * 2 <= retain && ms < 0.8 * all_ms) }' ||
    complain "$*: of $all bytes and $all_ms ms: $(cat out)"
}
less 66 --train '*.bias,*layer_norm*'
less 66 --lora 8 --lora-fa
less 55 --train 'block.3,block.4,block.5,layer_norm'
refuses --train 'block.7' nearest -- "${shape[@]}" --train block.7
refuses lora_linear 'rank of 385' '1 to 384' -- "${shape[@]}" --lora 385

refuses --budget "has no unit" -- "${shape[@]}" --budget 5
refuses --budget GiB -- "${shape[@]}" --budget 5XB
refuses --budget -- "${shape[@]}" --budget -3MiB
refuses --budget -- "${shape[@]}" --budget nan%
refuses 'MiB' -- "${shape[@]}" --budget 1KiB
refuses 'parameters themselves' -- "${shape[@]}" --total 1KiB
refuses --budget --total -- "${shape[@]}" --budget 1MiB --total 2MiB
"$plan_gpt" "${shape[@]}" --total 50% --moments int8 --json >out 2>err || complain "--total: $(cat err)"
awk -F'[ ,]+' '/parameter_bytes|gradient_bytes|moment_bytes|"peak_bytes/ { sum += $3 }
     /"total_bytes/ { total = $3 } END { exit !(total > 0 && sum == total) }' out ||
  complain "what is held does not add up: $(cat out)"
# A link that is too slow to be of use is not passed over in silence.
"$plan_gpt" "${shape[@]}" --budget 60% --tolerance 0 --link 0.0001 >out 2>err || complain "a slow link: $(cat err)"
grep -q '^note: nothing is sent to the store, which writes 0.1 and reads 0.1 MB/s: .* times as long' out ||
  complain "no note says that the link is too slow: $(cat out)"

# Moments in a store: less in memory, more waiting, and the link must be known.
"$plan_gpt" "${shape[@]}" --fused --budget 100% --json >out 2>err || complain "--fused: $(cat err)"
inside=$(number total_bytes) quick=$(number predicted_ms)
"$plan_gpt" "${shape[@]}" --fused --budget 100% --moments-store --link 0.5 --json >out 2>err ||
  complain "--moments-store: $(cat err)"
[ "$(number total_bytes)" -lt "$inside" ] || complain "--moments-store holds as much: $(cat out)"
[ "$(number stored_moment_bytes)" -gt "$(number moment_bytes)" ] || complain "nothing is in the store: $(cat out)"
awk "BEGIN { exit !($(number predicted_ms) > $quick && $(number offload_stall_ms) > 0) }" ||
  complain "moments in a store take no time: $(cat out)"
# Where moments should be, by time: the fastest way of those that fit, which is what its options say.
half=(--layers 3 "${shape[@]:2}")
"$plan_gpt" "${half[@]}" --fused --total 35% --link 2 --choose-moments >out 2>err ||
  complain "--choose-moments: $(cat err)"
grep -q '^moments fp32, in memory  *do not fit' out || complain "fp32 fits into 35 %: $(cat out)"
fastest=$(awk '/^moments .* of retain/ && (n == 0 || $(NF - 2) + 0 < n) { n = $(NF - 2) + 0 } END { printf "%.3f", n }' out)
grep -q "^predicted step .* $fastest of retain" out || complain "$fastest is not what was chosen: $(cat out)"
"$plan_gpt" "${half[@]}" --fused --total 35% --choose-moments --json >out 2>err ||
  complain "--choose-moments without a link: $(cat err)"
grep -q '"moments": "int8"' out || complain "int8 alone fits into 35 %: $(cat out)"
refuses --choose-moments --moments -- "${shape[@]}" --choose-moments --moments int8
# Parameters in bf16: half the bytes, and less in all, for some time.
"$plan_gpt" "${shape[@]}" --fused --budget 40% --tolerance 0 --json >out 2>err || complain "40 %: $(cat err)"
full=$(number parameter_bytes) quick=$(number predicted_ms) retain=$(number retain_ms)
"$plan_gpt" "${shape[@]}" --fused --budget 40% --tolerance 0 --parameters bf16 --json >out 2>err ||
  complain "--parameters bf16: $(cat err)"
[ $((2 * $(number parameter_bytes))) -eq "$full" ] || complain "not half of $full: $(cat out)"
awk "BEGIN { exit !($(number predicted_ms) > $quick && $(number retain_ms) == $retain) }" ||
  complain "parameters in bf16 take no time: $(cat out)"
refuses --parameters fp32 bf16 -- "${shape[@]}" --parameters int8
refuses --moments-store --link -- "${shape[@]}" --moments-store
# Every byte of a training: rows add up, and say what the same options say one by one.
"$plan_gpt" "${shape[@]}" --parts 4 --moments int8 --json >out 2>err || complain "in loops: $(cat err)"
smallest=$(number smallest_peak_bytes)
"$plan_gpt" "${shape[@]}" --budget 30% --moments int8 --json >out 2>err || complain "30 %: $(cat err)"
total=$(number total_bytes)
"$plan_gpt" "${shape[@]}" --total-picture picture.svg >table 2>err || complain "--total-picture: $(cat err)"
awk -F'|' -v smallest="$smallest" -v total="$total" '
     function off(a, b) { return a - b > 0.06 || b - a > 0.06 }
     NR > 2 { ++rows; sum = $4 + $5 + $6 + $7; d = sum - $8; if (d > 0.21 || d < -0.21) bad = 1 }
     NR == 5 && off($8 + 0, total / 1048576) { bad = 1 }
     NR == 6 && off($7 + 0, smallest / 1048576) { bad = 1 }
     $3 ~ /forward-only/ && ($5 + $6 > 0) { bad = 1 }
     END { exit bad || rows != 11 }' table || complain "the table does not add up: $(cat table) $smallest $total"
[ "$(grep -c 'MiB</text>' picture.svg)" -eq 11 ] || complain "the picture has not 11 bars"
refuses --total-picture --budget -- "${shape[@]}" --total-picture picture.svg --budget 30%
refuses nowhere -- "${shape[@]}" --total-picture nowhere/picture.svg
# Updates in the step: no gradients beside the arena, and less of a total.
"$plan_gpt" "${shape[@]}" --total 40% --moments int8 --fused --json >out 2>err || complain "--fused: $(cat err)"
grep -q '"gradient_bytes": 0,' out || complain "--fused has gradients: $(cat out)"
refuses --heads 5 --channels 384 -- "${shape[@]}" --heads 5
refuses --tolerance -- "${shape[@]}" --tolerance -1
refuses --tolerance -- "${shape[@]}" --tolerance nan
refuses --gflops -- "${shape[@]}" --gflops nan
refuses --gbps -- "${shape[@]}" --gbps nan
refuses --gap -- "${shape[@]}" --gap nan
refuses --deadline -- "${shape[@]}" --deadline nan
refuses nothere -- "${shape[@]}" --profile nothere
refuses --layers -- --layers 0
refuses nowhere -- "${shape[@]}" --svg nowhere/plan.svg
# Pipelines: what is planned keeps the peaks and is no slower than what recomputes every block.
seconds() {  # of the row
  sed -n '/^  "'"$1"'": {/,/^  }/p' out | sed -n 's/.*"step_seconds": *\([^,]*\).*/\1/p'
}
pipe=(--layers 6 --heads 4 --channels 256 --vocab 1000 --seq 256 --batch 1 --stages 2 --micro 8)
for extra in "--memory 1GiB --tensor 2 --ranks 32 --shard" "--memory 64MiB --tolerance 0"; do
  # shellcheck disable=SC2086
  "$plan_gpt" "${pipe[@]}" $extra --json >out 2>err || complain "$extra: $(cat err)"
  awk -v planned="$(seconds planned)" -v full="$(seconds 'full recomputation')" \
      -v same="$(seconds "planned, in full's peaks")" \
      'BEGIN { exit !(planned > 0 && planned <= full && same <= full && planned <= same * 1.01) }' ||
    complain "$extra: steps do not fit: $(seconds planned) $(seconds 'full recomputation')"
done
most=$(sed -n '/^  "planned": {/,/^  }/p' out | sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' | sort -n | tail -1)
[ "$most" -le $((64 * 1024 * 1024)) ] || complain "a stage takes $most bytes of 64 MiB"
"$plan_gpt" "${pipe[@]}" --memory 64MiB --tolerance 0 >out 2>err || complain "table: $(cat err)"
grep -q 'The model leaves out' out || complain "nothing says what the model leaves out"
refuses 'into 14 stages at most, and 40' -- "${pipe[@]}" --stages 40
refuses 'stage 0 of 2 does not fit' 'in flight' 'has 1.0 MiB' -- "${pipe[@]}" --memory 1MiB
refuses --ranks 9 --stages 2 -- "${pipe[@]}" --ranks 9
refuses --memory 80GiB -- "${pipe[@]}" --memory 50%
refuses --budget --stages -- "${pipe[@]}" --budget 50%
refuses --micro -- "${pipe[@]}" --micro 0
refuses --stages -- --micro 4
refuses --heads 5 --channels -- "${pipe[@]}" --heads 5

refuses_empty_values
explains stages micro ranks tensor model precision memory flops latency shard
explains layers heads channels vocab batch seq threads budget total optimizer parameters moments tolerance gap deadline solver profile \
    gflops gbps json svg total-picture

finish
