#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# train_gpt on a device, on the executor: its losses are the CPU's, checkpoints go from one to the other,
# plans keep budgets, and what is missing is said in words. Arguments: the program with the device,
# that without, and `few` for a short run, with more checks of the executor's.
on_cpu=$(realpath "$2")
source "$(dirname "$0")/../examples/command_line.sh" "$1"

seq 20000 >text
small=(--text text --layers 4 --heads 2 --channels 16 --context 16 --batch 2 --lr 1e-2 --clip 0.5
       --weight-decay 0.1 --warmup 1 --min-lr 1e-3 --steps 3)

# trains LOG PROGRAM ARGS...
trains() {
  "${@:2}" --log "$1" >"$1.out" 2>err || complain "${*:2}: $(cat err)"
}

# number KEY FILE: KEY's value in every line.
number() {
  sed -n 's/.*"'"$1"'" *: *\([^,}]*\).*/\1/p' "$2"
}

# alike A B TOLERANCE: the losses of two logs, at least one, from the last one backward.
alike() {
  paste <(number loss "$1" | tac) <(number loss "$2" | tac) |
    awk -v most="$3" 'NF == 2 { ++n; d = $1 - $2; if (d < 0) d = -d; if (!(d <= most)) bad = 1 }
                      END { exit !(n > 0 && !bad) }' ||
    complain "losses of $1 and $2: $(number loss "$1" | tr '\n' ' ') $(number loss "$2" | tr '\n' ' ')"
}

# exact OUTPUT: the peak is what was predicted.
exact() {
  awk '/activation peak, measured/ { m = $4 } /activation peak, predicted/ { p = $4 }
       END { exit !(m > 0 && m == p) }' "$1" || complain "$(cat "$1")"
}

trains cpu "$on_cpu" "${small[@]}" --threads 1 --policy retain --micro 2 --val text
trains gpu "$program" "${small[@]}" --device cuda --policy retain --micro 2 --val text
alike cpu gpu 1e-4
exact gpu.out
awk -v a="$(number val_loss cpu)" -v b="$(number val_loss gpu)" \
  'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || complain "losses of --val differ"

if [ "${3-}" = few ]; then
  trains plain "$program" "${small[@]}" --device cuda --policy retain --steps 2
  trains pinned "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --pinned 200% --steps 2
  grep -q '^plan .*, offload [1-9]' pinned.out || complain "$(cat pinned.out)"
  alike plain pinned 0
  exact pinned.out
  trains narrow "$program" "${small[@]}" --device cuda --precision bf16 --policy mixed --steps 2
  alike plain narrow 2e-2
  exact narrow.out
  finish
fi

# What one saved the other goes on with.
trains part "$program" "${small[@]}" --device cuda --policy retain --steps 2 --save part.ckpt
trains half "$on_cpu" "${small[@]}" --threads 1 --policy retain --steps 2 --save half.ckpt
trains on_cpu "$on_cpu" --resume part.ckpt --device cpu --threads 1 --steps 4
trains on_gpu "$program" --resume half.ckpt --device cuda --steps 4
trains same "$program" --resume part.ckpt --steps 4
alike on_cpu same 1e-4
alike on_gpu same 1e-4

# And both write the same text, which has no newline or it is shown as something else.
"$on_cpu" --resume part.ckpt --device cpu --threads 1 --steps 2 --sample 60 >text_of_cpu 2>err || complain "$(cat err)"
"$program" --resume part.ckpt --threads 1 --steps 2 --sample 60 >text_of_gpu 2>err ||
  complain "$(cat err)"
sed -n '/^sample:/,$p' text_of_cpu >sampled
[ "$(tail -n 1 sampled | wc -c)" -gt 60 ] || complain "no sample: $(cat text_of_cpu)"
cmp -s sampled <(sed -n '/^sample:/,$p' text_of_gpu) || complain "samples differ: $(cat sampled text_of_gpu)"

# Within a budget, whose costs are measured by events; lossless, it has the bits of retain.
trains plain "$program" "${small[@]}" --device cuda --policy retain
trains planned "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --plan-threads 2 --report page.html \
  --save planned.ckpt
grep -q 'measured by events' planned.out || complain "$(cat planned.out)"
grep -q recompute planned.out || complain "a budget changes no policy: $(cat planned.out)"
grep -q '^what codecs saw  *[1-9]' planned.out || complain "$(cat planned.out)"
alike plain planned 0
exact planned.out
[ -s page.html ] || complain "there is no report"
trains further "$program" --resume planned.ckpt --steps 4
grep -q 'those of the checkpoint' further.out || complain "$(cat further.out)"

# Costs that are kept, and with them the same plan at once; those of the CPU are others.
tiny=(--text text --layers 1 --heads 2 --channels 16 --context 8 --batch 2 --steps 2 --budget 100%)
trains kept "$program" "${tiny[@]}" --device cuda --profile costs
grep -q 'measured by events .*gradient errors probed; written to costs' kept.out ||
  complain "$(cat kept.out)"
trains again "$program" "${tiny[@]}" --device cuda --profile costs
grep -q 'read from costs' again.out || complain "$(cat again.out)"
cmp -s <(grep '^plan' kept.out) <(grep '^plan' again.out) ||
  complain "costs that were read: $(grep '^plan' kept.out again.out)"
cp costs costs.cuda
trains host "$on_cpu" "${tiny[@]}" --threads 1 --profile costs
grep -q 'measured in .*costs.*written' host.out || complain "$(cat host.out)"
# Of each codec there are two times and, behind them, two errors: probed, they are the CPU's.
paste <(grep '^layer' costs.cuda) <(grep '^layer' costs) |
  awk '{ n = NF / 2
         for (c = 8; c <= n; c += 4) for (i = c + 2; i <= c + 3; ++i) {
           a = $i; b = $(n + i)
           if (b > 1e-9 && a != b) { if (a > 0.99 * b && a < 1.01 * b) ++near; else bad = 1 }
         } }
       END { exit !(near > 30 && !bad) }' ||
  complain "probed errors differ: $(grep '^layer' costs.cuda costs)"

# Launched as graphs, steps have the same bits, under a plan of one's own and under one that is made here.
trains graphs "$program" "${small[@]}" --device cuda --policy retain --steps 6
trains direct "$program" "${small[@]}" --device cuda --policy retain --no-capture --steps 6
grep -q '^steps launched as graphs  *5$' graphs.out || complain "$(cat graphs.out)"
alike direct graphs 0
exact graphs.out
trains graphs "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --steps 6
grep -q '^steps launched as graphs  *[1-9]' graphs.out || complain "$(cat graphs.out)"
alike direct graphs 0
! grep -q 'launched as graphs' direct.out || complain "$(cat direct.out)"
refuses --no-capture 'give --device cuda' -- --text text --steps 2 --no-capture

# The head by as many rows as are asked for, which a resumed run takes up; the CPU has no such choice.
grep -q '^head  *32 of 32 rows at a time$' direct.out || complain "$(cat direct.out)"
trains tiles "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --head-rows 16 --save tiles.ckpt
grep -q '^head  *16 of 32 rows at a time$' tiles.out || complain "$(cat tiles.out)"
alike plain tiles 1e-4
exact tiles.out
trains tiled "$program" --resume tiles.ckpt --steps 4
grep -q '^head  *16 of 32 rows at a time$' tiled.out || complain "$(cat tiled.out)"
if "$program" --resume tiles.ckpt --steps 4 --head-rows 32 >out 2>err; then
  complain "a plan of another tile went on: $(cat out)"
fi
grep -q 'set device_tile_rows to 16' err || complain "another tile: $(cat err)"
trains hosted "$on_cpu" --resume tiles.ckpt --device cpu --threads 1 --steps 4
refuses --head-rows 'give --device cuda' -- --text text --steps 2 --head-rows 16

# Page-locked memory of the host takes what comes back as it was.
trains pinned "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --pinned 200%
grep -q '^offload .*page-locked' pinned.out && grep -q '^plan .*, offload [1-9]' pinned.out ||
  complain "$(cat pinned.out)"
alike plain pinned 0
exact pinned.out
trains graphs "$program" "${small[@]}" --device cuda --budget 70% --tolerance 0 --pinned 200% --steps 6
grep -q '^steps launched as graphs  *[1-9]' graphs.out && grep -q '^plan .*, offload [1-9]' graphs.out ||
  complain "$(cat graphs.out)"
alike direct graphs 0

# Activations in bfloat16: other losses, but near, the same ones under a lossless plan, and a plan with
# codecs within its budget. Checkpoints hold fp32, and go on anywhere.
trains narrow "$program" "${small[@]}" --device cuda --precision bf16 --policy retain
alike plain narrow 2e-2
exact narrow.out
cmp -s <(number loss plain) <(number loss narrow) && complain "--precision bf16 has the losses of fp32"
grep -q 'activations in bf16' narrow.out || complain "$(cat narrow.out)"
trains lossless "$program" "${small[@]}" --device cuda --precision bf16 --budget 70% --tolerance 0
grep -q recompute lossless.out || complain "a budget changes no policy: $(cat lossless.out)"
alike narrow lossless 0
exact lossless.out
trains coded "$program" "${small[@]}" --device cuda --precision bf16 --budget 57.2% --tolerance 0.5 \
  --save coded.ckpt
grep -q '^plan .*_outlier [1-9]' coded.out || complain "a budget encodes nothing: $(cat coded.out)"
alike narrow coded 2e-2
exact coded.out
# The budget of a device does not fit the workspaces of the host.
trains wide "$on_cpu" --resume coded.ckpt --device cpu --threads 1 --budget 100% --steps 4
trains still "$program" --resume coded.ckpt --steps 4
grep -q 'those of the checkpoint' still.out || complain "$(cat still.out)"
alike wide still 2e-2

# The fastest algorithms of products, which differ in bits, are taken again from the file.
export PTXRUN_FAST_PRODUCT=2
trains tuned "$program" "${small[@]}" --device cuda --policy retain --tune-products products
grep -q 'algorithms of products by time, chosen in this run' tuned.out || complain "$(cat tuned.out)"
cmp -s <(number loss plain) <(number loss tuned) && complain "--tune-products has the losses of the first algorithms"
cp products kept
PTXRUN_FAST_PRODUCT=3 trains tuned_again "$program" "${small[@]}" --device cuda --policy recompute --tune-products products
grep -q 'by time, read from products' tuned_again.out || complain "$(cat tuned_again.out)"
alike tuned tuned_again 0
cmp -s products kept || complain "known algorithms were written anew"
PTXRUN_CUBLASLT_VERSION=130200 trains tuned_anew "$program" "${small[@]}" --device cuda --policy retain \
  --tune-products products
grep -q 'this is cuBLASLt 130200 on .*: they are chosen anew' tuned_anew.out || complain "$(cat tuned_anew.out)"
unset PTXRUN_FAST_PRODUCT
echo other >other
refuses '--tune-products other' 'is no file of algorithms of products' -- "${small[@]}" --device cuda --tune-products other
refuses '--tune-products' 'give --device cuda' -- "${small[@]}" --tune-products products

# Other optimizers, moments and parameters in other forms: the CPU's losses; each goes on from the other's checkpoint.
for how in '--optimizer sgd' '--optimizer lion --moments int8' '--optimizer adafactor' \
           '--moments bf16 --parameters bf16'; do
  # shellcheck disable=SC2086  # words are meant
  trains host "$on_cpu" "${small[@]}" --threads 1 --policy retain $how --save host.ckpt
  # shellcheck disable=SC2086
  trains device "$program" "${small[@]}" --device cuda --policy retain $how --save device.ckpt
  near=1e-4
  [[ $how == *parameters* ]] && near=2e-3 # numbers are rounded otherwise where sums differ in their last bit
  alike host device $near
  exact device.out
  diff <(grep -E '^(parameters|gradients|moments) ' host.out) <(grep -E '^(parameters|gradients|moments) ' device.out) \
    >differs || complain "$how: $(cat differs)"
  trains on_cpu "$on_cpu" --resume device.ckpt --device cpu --threads 1 --steps 4
  trains on_gpu "$program" --resume host.ckpt --device cuda --steps 4
  alike on_cpu on_gpu $near
done
trains narrow "$program" "${small[@]}" --device cuda --precision bf16 --policy retain --moments int8 --parameters bf16
alike plain narrow 2e-2
exact narrow.out

for option in '--parts 2' '--lora 2' '--fused' '--shards 2' '--forward-only' '--offload .'; do
  # shellcheck disable=SC2086  # words are meant
  refuses "${option%% *}" 'is for --device cpu' -- --text text --steps 2 --device cuda $option
done
refuses '--attention cudnn' 'built without cuDNN' -- "${small[@]}" --device cuda --precision bf16 --attention cudnn
refuses '--attention cudnn is for activations in bf16 on a device' -- "${small[@]}" --device cuda --attention cudnn
refuses '--pinned' '--device cuda' -- "${small[@]}" --pinned 1MiB
PTXRUN_DEVICES=0 refuses 'there is no CUDA device' -- "${small[@]}" --device cuda
PTXRUN_DRIVER=old refuses 'the driver is older' -- "${small[@]}" --device cuda
PTXRUN_MEMORY=100000 refuses 'bytes) of device memory are wanted, and' 'are free' -- \
  "${small[@]}" --device cuda --policy retain
program=$on_cpu refuses 'built without CUDA' -- "${small[@]}" --device cuda
finish
