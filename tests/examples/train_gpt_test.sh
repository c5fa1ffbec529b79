#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# train_gpt as a user meets it: every bad input gets one clear line and status 2, nothing is left
# half-written, and a run that is killed and resumed gives the losses of one that was not.
seal_profile=$(realpath "$2")
source "$(dirname "$0")/command_line.sh" "$1"
train_gpt=$program

small=(--layers 1 --heads 2 --channels 16 --context 16 --batch 2 --threads 2 --seed 3)

# word FILE N VALUE: overwrites 32-bit word N of FILE.
word() {
  printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($3 & 255)) $(($3 >> 8 & 255)) \
    $(($3 >> 16 & 255)) $(($3 >> 24 & 255)))" | dd of="$1" bs=4 seek="$2" conv=notrunc status=none
}

# kill_after SECONDS PROCESS: kills a program in whatever it is doing.
kill_after() {
  sleep "$1"
  kill -9 "$2" 2>/dev/null
  wait "$2" 2>/dev/null
}

# --- files that are no models -------------------------------------------------------------------
# A model of 1 layer, 1 head, 4 channels, context 4, vocabulary 8: 32 + 16 + 4*2 + 48 + 12 + 16 + 4
# + 4*2 + 64 + 16 + 64 + 4 + 4*2 = 300 zeros.
head -c $((1024 + 4 * 300)) /dev/zero >model
i=0
for value in 20240326 3 4 8 1 1 4 8; do word model $i $value; i=$((i + 1)); done
head -c $((1024 + 2 * 40)) /dev/zero >tokens
word tokens 0 20240520; word tokens 1 1; word tokens 2 40
"$train_gpt" --model model --tokens tokens --batch 2 --steps 2 >out 2>err ||
  complain "a good model and good tokens: $(cat err)"

refuses nothere 'No such file' -- --model nothere
refuses config.json -- --model .
cp model bad; word bad 0 7; refuses bad 20240326 -- --model bad
cp model bad; word bad 1 5; refuses bad 'version 5' -- --model bad
head -c 2000 model >bad; refuses bad truncated -- --model bad
head -c 100 model >bad; refuses bad truncated -- --model bad
cp model bad; word bad 300 2143289344; refuses bad NaN -- --model bad --tokens tokens --batch 1
cp model bad; word bad 6 0; refuses bad channels -- --model bad
cp model bad; word bad 4 2147483647; word bad 6 2147483644; refuses bad -- --model bad
cp model bad; word bad 5 3; refuses bad heads -- --model bad
refuses --most-runs --parts -- --model model --policy auto --most-runs 2 --parts 2
refuses --most-runs --offload -- --model model --policy auto --most-runs 2 --offload .
refuses --most-runs auto -- --model model --policy retain --most-runs 2
refuses model leave -- --model model --layers 2
refuses tokens 'llm.c token file' -- --model tokens

# --- files that are no tokens -------------------------------------------------------------------
refuses nothere -- "${small[@]}" --tokens nothere
cp tokens bad; word bad 0 1; refuses bad 20240520 -- "${small[@]}" --tokens bad
cp tokens bad; word bad 1 2; refuses bad 'version 2' -- "${small[@]}" --tokens bad
head -c 1050 tokens >bad; refuses bad truncated -- "${small[@]}" --tokens bad
cp tokens bad; word bad 257 70000; refuses bad token vocabulary -- --model model --tokens bad --batch 2
refuses tokens 'at least' -- "${small[@]}" --tokens tokens --batch 8
: >empty; refuses empty 'is empty' -- "${small[@]}" --text empty
mkdir nofiles; refuses nofiles 'no files' -- "${small[@]}" --text nofiles
refuses nothere -- "${small[@]}" --text nothere

# --- options --------------------------------------------------------------------------------------
refuses --seq 17 16 -- "${small[@]}" --seq 17
refuses --heads 3 --channels 16 -- --layers 1 --heads 3 --channels 16
refuses --layers -- --layers 0
refuses --channels -- --channels 99999999999999999999
refuses --batch -- --batch 0
refuses --steps -- --steps -1
refuses --policy auto retain recompute int8 int4 tolerated mixed -- --policy best
refuses --budget "has no unit" -- --budget 5
refuses --budget GiB -- --budget 7XB
refuses --budget -- --budget -1MiB
refuses --budget -- --budget 0%
refuses --budget decimal -- --budget 0x10MiB
refuses --budget unit -- --budget 30%%
refuses --tolerance -- --tolerance -1
refuses --threads -- --threads 0
refuses --lr -- --lr -1
refuses --clip -- --clip nan
refuses --weight-decay -- --weight-decay nan
refuses --lr -- --lr inf
refuses --tolerance -- --tolerance nan
refuses --seed -- --seed -1
refuses --seed -- --seed 18446744073709551616
refuses --seed -- --seed 1x
refuses --budget auto mixed -- "${small[@]}" --policy mixed --budget 50%
refuses --tolerance auto -- "${small[@]}" --policy retain --tolerance 0.1
refuses --optimizer adamw sgd lion adafactor -- --optimizer adam
refuses --moments fp32 bf16 int8 -- --moments int4
refuses --moments Adafactor -- "${small[@]}" --optimizer adafactor --moments int8
refuses --budget --total -- "${small[@]}" --budget 50% --total 50%
refuses --total auto retain -- "${small[@]}" --policy retain --total 50%
refuses --moments-window --moments-store -- "${small[@]}" --moments-window 1MiB
refuses --may-freeze --moments-store -- "${small[@]}" --may-freeze --budget 50% --moments-store .
refuses --moments-store --forward-only -- "${small[@]}" --forward-only --moments-store .
refuses --clip --fused '--clip-by previous' -- "${small[@]}" --fused --clip 1
refuses --micro --fused -- "${small[@]}" --fused --micro 2
refuses 'limited by the parameters themselves' 'the least known is' -- "${small[@]}" --total 1KiB
refuses --nonsense -- --nonsense
refuses 'warm-up' -- "${small[@]}" --steps 5 --warmup 5 --min-lr 0.0001
refuses '' -- --layers 4096 --heads 1 --channels 1048576 --context 1048576 --batch 1048576
refuses 'more than the machine' -- --layers 4000 --heads 4 --channels 8192 --context 16 --batch 1
refuses --log nowhere/log -- "${small[@]}" --log nowhere/log --steps 1
refuses --log -- "${small[@]}" --log /dev/full --steps 1
refuses nowhere -- "${small[@]}" --save nowhere/checkpoint --steps 1
# One file for two purposes: nothing is written.
echo "precious text" >precious && cp precious copy && ln -s precious linked
refuses --text --save -- "${small[@]}" --text precious --save precious
refuses --text --log -- "${small[@]}" --text precious --log ./precious
refuses --text --report -- "${small[@]}" --text precious --report linked
refuses --val --save -- "${small[@]}" --val precious --save precious
refuses --text --profile -- "${small[@]}" --text precious --profile precious
refuses --save --report -- "${small[@]}" --save new --report new
refuses --log --report -- "${small[@]}" --log new --report ./new
refuses --profile --save -- "${small[@]}" --profile new --save new
refuses --tokens --log -- "${small[@]}" --tokens precious --log precious
refuses --model --save -- --model model --save model
cmp -s precious copy || complain "a file that was read was overwritten"
[ -e new ] && complain "something was written in spite of a refusal"

# --- auto -----------------------------------------------------------------------------------------
cat "$train_gpt" | head -c 300000 >text
refuses budget smallest limited -- "${small[@]}" --text text --budget 1B
refuses nowhere -- "${small[@]}" --text text --report nowhere/report.html --steps 1
planned=("${small[@]}" --layers 3 --channels 32 --context 32 --batch 4 --text text --steps 12)
"$train_gpt" "${planned[@]}" --budget 60% --profile costs --log auto.jsonl --report auto.html \
  --save auto >out 2>err || complain "auto: $(cat err)"
grep -q 'measured in .*written to costs' out || complain "auto does not say what it measured: $(cat out)"
# What is kept was probed; the errors of the reference model carry twice as much through recomputation.
awk '/^layer 7 gelu/ { seen = 1; assumed = $9 * 2 == $10 } END { exit !seen || assumed }' costs ||
  complain "the profile holds errors that were not probed: $(grep '^layer 7' costs)"
peak=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
retain=$(sed -n 's/.*would have needed *\([0-9]*\) bytes.*/\1/p' out)
predicted=$(sed -n 's/.*predicted *\([0-9]*\) bytes.*/\1/p' out)
[ "$peak" = "$predicted" ] && [ $((peak * 100)) -le $((retain * 60)) ] ||
  complain "auto used $peak bytes, predicted $predicted, of $retain"
[ "$(grep -c '"plan_version":' auto.jsonl)" -eq 12 ] || complain "the log has no plan_version"
grep -q '</html>' auto.html || complain "the report is cut off"
grep -q 'Predicted and measured' auto.html || complain "the report does not compare"
grep -q "loops" auto.html && complain "the report of whole layers has loops"
# In parts: the report says what loops there are, draws them, and says what would be without.
"$train_gpt" "${planned[@]}" --parts 4 --budget 30% --steps 2 --report parts.html >out 2>err ||
  complain "--parts: $(cat err)"
loops=$(sed -n 's/.*<td>loops over rows<\/td><td>\([0-9]*\) of 4 parts, .*without loops the peak would be .*/\1/p' parts.html |
        head -n 1)
bars=$(sed -n "/<g class='loops'>/,/<\/g>/p" parts.html | grep -c '<rect')
[ -n "$loops" ] && [ "$loops" -gt 3 ] && [ "$loops" -eq "$bars" ] || complain "'$loops' loops, $bars drawn"
grep -q "<path fill='#a9c4df'" parts.html && grep -q '>one part<' parts.html || complain "no tiles in the report"
# A second run reads the profile; one of another model is refused, measured anew, and said so.
"$train_gpt" "${planned[@]}" --budget 60% --profile costs >out 2>err || complain "auto again: $(cat err)"
grep -q 'read from costs' out || complain "the profile was not read: $(cat out)"
"$train_gpt" "${planned[@]}" --layers 2 --budget 70% --profile costs >out 2>err ||
  complain "auto with another model's profile: $(cat err)"
grep -q 'measured in .*costs.*written' out || complain "another model's profile: $(cat out)"
# Planned for a stated number of threads, plan and losses are those of one profile, however many run, and
# the profile stays.
stated=("${small[@]}" --layers 3 --channels 32 --context 32 --batch 4 --text text --steps 4 --budget 60%
        --plan-threads 4 --fixed-costs --profile stated.costs)
"$train_gpt" "${stated[@]}" --threads 1 >out 2>err || complain "--plan-threads: $(cat err)"
cp stated.costs first.costs
for threads in 1 2 4; do
  "$train_gpt" "${stated[@]}" --threads $threads --log log >out 2>err ||
    complain "--plan-threads, of $threads threads: $(cat err)"
  grep -q 'read from stated.costs' out || complain "of $threads threads: $(grep costs out)"
  cmp -s stated.costs first.costs || complain "the profile was overwritten by $threads threads"
  { grep '^plan ' out; grep -o '"loss":[^,]*' log; } >of.$threads
  [ "$(wc -l <of.$threads)" -eq 5 ] && cmp -s of.1 of.$threads ||
    complain "the plan depends on threads: $(cat of.1 of.$threads)"
done
# Without a stated number it holds for those that it was measured with.
"$train_gpt" "${planned[@]}" --budget 60% --threads 2 --profile first.costs >out 2>err || complain "$(cat err)"
grep -q 'another number of threads' out || complain "a profile of 1 thread was taken for 2: $(grep costs out)"
# A file that is no profile is not replaced by one.
echo "dear diary" >diary && cp diary copy
refuses diary 'is not an adacc cost profile' 'stays as it is' -- "${planned[@]}" --budget 60% --profile diary
cmp -s diary copy || complain "a file that is no profile was overwritten"
: >blank
"$train_gpt" "${planned[@]}" --budget 60% --profile blank >out 2>err || complain "an empty profile: $(cat err)"
grep -q '^adacc cost profile' blank || complain "an empty file did not become a profile"
head -c 100 costs >cut && mv cut costs
"$train_gpt" "${planned[@]}" --budget 60% --profile costs >out 2>err || complain "a cut profile: $(cat err)"
grep -q 'measured in .*written' out || complain "a cut profile was taken: $(cat out)"
# Resumed without --policy, the plan of the checkpoint is taken up.
"$train_gpt" "${planned[@]}" --resume auto --steps 14 >out 2>err || complain "resuming auto: $(cat err)"
[ "$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)" = "$peak" ] ||
  complain "the checkpoint of auto lost its plan"
# A total of everything; what is held keeps it, and says so.
"$train_gpt" "${planned[@]}" --total 60% --moments int8 >out 2>err || complain "--total: $(cat err)"
all=$(sed -n 's/^in all *\([0-9]*\) bytes.*/\1/p' out)
total=$(sed -n 's/^--total *\([0-9]*\) bytes.*/\1/p' out)
[ -n "$all" ] && [ "$all" -le "$total" ] || complain "--total $total bytes, held $all"
# Updates in the step: the same losses in less memory, and no gradients beside the arena.
for fused in "" --fused; do
  "$train_gpt" "${small[@]}" --policy recompute --steps 5 --log "log$fused" $fused >"out$fused" 2>err ||
    complain "recompute $fused: $(cat err)"
  sed -i 's/.*"loss":\([^,]*\),.*/\1/' "log$fused"
done
cmp -s log log--fused || complain "--fused changes losses: $(paste log log--fused)"
held() { sed -n 's/^in all *\([0-9]*\) bytes.*/\1/p' "$1"; }
[ "$(held out--fused)" -lt "$(held out)" ] || complain "--fused holds $(held out--fused), else $(held out)"
grep -q '^gradients  *0 bytes' out--fused || complain "--fused holds gradients: $(cat out--fused)"
# All of the budget: nothing is measured, everything retained.
"$train_gpt" "${planned[@]}" >out 2>err || complain "auto without a budget: $(cat err)"
[ "$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)" = "$retain" ] ||
  complain "auto without a budget does not retain: $(cat out)"

# --- checkpoints ----------------------------------------------------------------------------------
cat "$train_gpt" | head -c 300000 >text
run=("$train_gpt" "${small[@]}" --text text --policy mixed --lr 0.01 --warmup 4 --min-lr 0.001 --clip 1)
"${run[@]}" --steps 40 --log whole.jsonl --save whole >out 2>err || complain "a whole run: $(cat err)"
[ "$(wc -l <whole.jsonl)" -eq 40 ] || complain "the log has other than 40 lines"
losses() { sed 's/"ms".*//' "$1"; }

# Killed at some moment and resumed, again and again.
for wait in 0.05 0.1 0.2 0.3; do
  resume=()
  [ -f part ] && resume=(--resume part)
  "${run[@]}" --steps 40 --log part.jsonl --save part --save-every 3 "${resume[@]}" >out 2>err &
  kill_after "$wait" $!
done
resume=()
[ -f part ] && resume=(--resume part)
"${run[@]}" --steps 40 --log part.jsonl --save part "${resume[@]}" --threads 1 >out 2>err ||
  complain "resuming: $(cat err)"
cmp -s <(losses whole.jsonl) <(losses part.jsonl) || complain "a resumed run's losses differ"
cmp -s whole part || complain "a resumed run's last checkpoint differs"

# A resumed run without --policy takes up the plan of the checkpoint.
"$train_gpt" --text text --batch 2 --resume whole --steps 41 --threads 2 >out 2>err ||
  complain "resuming from the checkpoint's own shape and plan: $(cat err)"
mixed=$(sed -n 's/.*predicted *\([0-9]*\) bytes.*/\1/p' out)
retain=$(sed -n 's/.*would have needed *\([0-9]*\) bytes.*/\1/p' out)
[ -n "$mixed" ] && [ "$mixed" -lt "$retain" ] || complain "the checkpoint's plan was not taken up"
measured=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
[ "$measured" = "$mixed" ] || complain "measured $measured bytes, predicted $mixed"

# Options that differ hold, and are announced; those of auto are refused where nothing is planned.
"${run[@]}" --resume whole --steps 42 --lr 0.02 --clip 0 >out 2>err || complain "other options: $(cat err)"
grep -q -- '--lr 0.02 instead of 0.01' out && grep -q -- '--clip 0 instead of 1' out ||
  complain "other options are not announced: $(cat out)"
"$train_gpt" --resume whole --steps 42 --text copy --batch 1 --seq 8 >out 2>err ||
  complain "another text and batch: $(cat err)"
grep -q -- '--batch 1 instead of 2' out && grep -q -- '--seq 8 instead of 16' out &&
  grep -q 'another text: from its start' out || complain "another text and batch: $(cat out)"
# So are those that go back to what they are without being given.
"$train_gpt" "${small[@]}" --text text --clip 1 --clip-by previous --micro 2 --parts 2 --fixed-costs --steps 2 \
  --save unusual >out 2>err || complain "unusual options: $(cat err)"
usual=('--micro 1 instead of 2' '--clip-by step instead of previous' '--parts 1 instead of 2'
       '--fixed-costs false instead of true')
"$train_gpt" --resume unusual --threads 2 --steps 3 --micro 1 --clip-by step --parts 1 --fixed-costs=false >out 2>err ||
  complain "options of no run in particular: $(cat err)"
for change in "${usual[@]}"; do
  grep -q -- "^ *$change\$" out || complain "'$change' is not announced: $(cat out)"
done
"$train_gpt" --resume unusual --threads 2 --steps 3 --micro 2 --clip-by previous --parts 2 >out 2>err ||
  complain "options as they were: $(cat err)"
grep -q 'instead of' out && complain "options that are as they were are announced: $(cat out)"
refuses --budget auto mixed -- --resume whole --budget 40%
refuses --profile auto mixed -- --resume whole --profile costs
refuses --resume --log -- --resume whole --log whole
# Nothing left to do is no reason not to save.
"$train_gpt" --resume whole --steps 40 --save again >out 2>err || complain "no steps left: $(cat err)"
cmp -s whole again || complain "with no steps left, nothing was saved"

# --- optimizers -----------------------------------------------------------------------------------
for kind in 'sgd bf16' 'lion int8' 'adamw int8' 'adafactor fp32'; do
  of=("$train_gpt" "${small[@]}" --text text --policy mixed --clip 1 --optimizer "${kind% *}" --moments "${kind#* }")
  "${of[@]}" --steps 12 --log kind.jsonl --save kind >out 2>err || complain "$kind: $(cat err)"
  "${of[@]}" --steps 7 --log half.jsonl --save half >out 2>err || complain "$kind, half: $(cat err)"
  "$train_gpt" --resume half --steps 12 --log half.jsonl --save half >out 2>err ||
    complain "$kind, resumed: $(cat err)"
  cmp -s <(losses kind.jsonl) <(losses half.jsonl) && cmp -s kind half ||
    complain "$kind: a resumed run differs"
done
refuses 'state of Adafactor' 'is AdamW' -- --resume kind --optimizer adamw
"${run[@]}" --resume whole --moments int8 --steps 42 --save kind >out 2>err ||
  complain "resumed with other moments: $(cat err)"
grep -q -- '--moments int8 instead of fp32' out || complain "other moments are not announced: $(cat out)"
[ $(($(stat -c %s whole) * 6)) -gt $(($(stat -c %s kind) * 10)) ] ||
  complain "int8's checkpoint is as large as fp32's"

# --- safetensors ------------------------------------------------------------------------------------
mkdir exported again_exported hollow
"${run[@]}" --steps 6 --export exported >out 2>err || complain "--export: $(cat err)"
"$train_gpt" --model exported --text text --batch 2 --steps 0 --policy retain --export again_exported \
  >out 2>err || complain "reading what was exported: $(cat err)"
cmp -s exported/model.safetensors again_exported/model.safetensors && cmp -s {exported,again_exported}/config.json ||
  complain "an exported model, read and exported, is another"
refuses hollow 'config.json' -- --model hollow
cp exported/config.json hollow; refuses hollow 'neither model.safetensors' -- --model hollow
head -c 1000 exported/model.safetensors >hollow/model.safetensors
refuses hollow truncated -- --model hollow --text text --batch 2
# All that is wrong with a model is listed: of its configuration, and of its tensors.
cp exported/model.safetensors hollow
sed 's/"gelu_new"/"relu"/; s/"n_layer": 1/"n_layer": 0/' exported/config.json >hollow/config.json
"$train_gpt" --model hollow --text text --batch 2 >out 2>err && complain "a configuration that is none"
for what in activation_function n_layer; do
  grep -q "^train_gpt: $what is" err || complain "$what is not in: $(cat err)"
done
sed 's/"n_layer": 1/"n_layer": 2/; s/"n_positions": 16/"n_positions": 24/' exported/config.json >hollow/config.json
"$train_gpt" --model hollow --text text --batch 2 >out 2>err && complain "a model with more layers than its file"
[ "$(grep -c '^train_gpt: "h.1.*" is missing' err)" -eq 12 ] || complain "not all missing: $(cat err)"
grep -q '^train_gpt: "wpe.weight" is (16, 16), not (24, 16)' err || complain "$(cat err)"
tail -n 1 err | grep -q 'hollow: 13 of 28 tensors' || complain "no count: $(cat err)"
# Sizes that are blown up are compared with the tensors before anything is made of them: little memory does.
for blown in 's/"n_layer": 1/"n_layer": 4096/ n_layer' 's/"n_layer": 1/"n_layer": 400000/ n_layer' \
  's/"n_embd": 16/"n_embd": 1600000/ wte.weight' 's/"vocab_size": 256/"vocab_size": 2000000000/ wte.weight'; do
  sed "${blown% *}" exported/config.json >hollow/config.json
  (ulimit -v 400000; exec "$train_gpt" --model hollow --text text --batch 2) >out 2>err && complain "$blown"
  grep -q "${blown##* }" err || complain "$blown: $(cat err)"
done
refuses --export -- --steps 0 --export nowhere
refuses 'cannot be written' -- --text text --steps 0 --export nowhere/weights.h
"$train_gpt" --model exported --text text --batch 2 --steps 0 --policy retain --export weights.h \
  >out 2>err || complain "--export weights.h: $(cat err)"
for name in weights_embedding_wte weights_block_0_linear_weight weights_tensors; do
  grep -q "^weights_CONST .* $name\[" weights.h || complain "$name is not in weights.h"
done
"$train_gpt" --model exported --text text --batch 2 --steps 0 --policy retain --export small.h --export-int8 \
  >out 2>err || complain "--export-int8: $(cat err)"
for tensor in 'signed char small_embedding_wte\[' 'float small_embedding_wte_scale\[' \
  'signed char small_block_0_linear_weight\[' 'float small_block_0_linear_bias\['; do
  grep -q "^small_CONST $tensor" small.h || complain "$tensor is not in small.h"
done
refuses --export-int8 'C header' -- --model exported --steps 0 --export exported --export-int8
refuses --export 'one file' -- --model exported --export exported/.

# --- a part of it, adapters, micro-batches ----------------------------------------------------------
part=("$train_gpt" --layers 2 --heads 2 --channels 16 --context 16 --threads 1 --seed 3 --text text
      --policy retain --lr 0.01)
refuses --train '"block.5.linear"' 'nearest is "block.0.linear"' -- "${small[@]}" --text text \
  --train '*.bias,block.5.linear'
refuses --train 'is empty' -- "${small[@]}" --text text --train ''
refuses --train --lora excludes -- "${small[@]}" --text text --train '*.bias' --lora 2
refuses lora_linear 'rank of 17' '1 to 16' -- "${small[@]}" --text text --lora 17
refuses --lora-fa --lora -- --lora-fa
refuses --merge --lora -- --merge merged
peak() { sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' "$1"; }
"${part[@]}" --steps 4 --save plain >all 2>err || complain "all of it: $(cat err)"
"${part[@]}" --channels 8 --steps 0 --save narrow >out 2>err || complain "a narrow model: $(cat err)"
"${part[@]}" --train 'block.1.*bias,layer_norm' --steps 7 --save some >out 2>err || complain "--train: $(cat err)"
grep -q 'are trained' out && [ "$(peak out)" -lt "$(peak all)" ] || complain "--train saves nothing: $(cat out)"
"${part[@]}" --train 'block.1.*bias,layer_norm' --steps 3 --save half >out 2>err || complain "--train: $(cat err)"
"$train_gpt" --resume half --threads 1 --steps 7 --save half >out 2>err || complain "resuming it: $(cat err)"
cmp -s some half || complain "a run of which some is frozen, resumed, ends elsewhere"
# With another set it goes on from the same parameters, and says so.
"$train_gpt" --resume some --threads 1 --steps 8 --train 'block' >out 2>err || complain "another set: $(cat err)"
grep -q -- '--train block instead of block.1' out || complain "another set is not announced: $(cat out)"
"$train_gpt" --resume plain --threads 1 --steps 5 --train 'head' --policy auto >out 2>err ||
  complain "a part of what was whole: $(cat err)"
# Adapters on a checkpoint; what is merged is what was trained.
lora=("$train_gpt" --model plain --text text --threads 1 --lora 2 --lora-fa --micro 2)
mkdir adapted remerged
"${lora[@]}" --steps 5 --save tuned --merge merged --export adapted --log tuned.jsonl >out 2>err ||
  complain "--lora: $(cat err)"
[ -f tuned.lora.safetensors ] || complain "the adapters are not beside the checkpoint"
"$train_gpt" --model merged --text text --steps 0 --export remerged >out 2>err || complain "merged: $(cat err)"
cmp -s adapted/model.safetensors remerged/model.safetensors || complain "--merge and --export differ"
"$train_gpt" --model plain --text text --steps 0 --export remerged >out 2>err || complain "plain: $(cat err)"
cmp -s adapted/model.safetensors remerged/model.safetensors && complain "nothing was merged"
# The loss goes on from the merged model where the adapted one was.
"${lora[@]}" --steps 6 --log tuned.jsonl >out 2>err || complain "--lora: $(cat err)"
"$train_gpt" --resume tuned --threads 1 --steps 6 --log next.jsonl >out 2>err || complain "resuming: $(cat err)"
cmp -s <(losses tuned.jsonl | tail -n 1) <(losses next.jsonl | tail -n 1) ||
  complain "adapters, resumed, have other losses: $(tail -n 1 next.jsonl)"
"$train_gpt" --resume tuned --threads 1 --steps 6 --lora-fa=false >out 2>err || complain "LoRA of LoRA-FA: $(cat err)"
refuses tuned 'LoRA of rank 2, alpha 4' 'LoRA of rank 3' -- --resume tuned --lora 3
refuses plain 'GPT-2' 'LoRA of rank 2' -- --resume plain --lora 2
refuses tuned 'LoRA of rank 2' 'merge' -- --model tuned --text text
# Adapters from their file, beside the model that they were trained beside.
adapter=(--model plain --adapter tuned.lora.safetensors --text text --threads 1 --steps 0)
"$train_gpt" "${adapter[@]}" --save read --merge reread >out 2>err || complain "--adapter: $(cat err)"
grep -q 'LoRA of rank 2, alpha 4' out || complain "adapters without their shape: $(cat out)"
cmp -s tuned.lora.safetensors read.lora.safetensors || complain "adapters that were read are others"
"$train_gpt" --model reread --text text --steps 0 --export remerged >out 2>err || complain "reread: $(cat err)"
cmp -s adapted/model.safetensors remerged/model.safetensors || complain "--merge of --adapter is another"
refuses --adapter --model -- --text text --adapter tuned.lora.safetensors
refuses tuned.lora 'rank 2' 'alpha 4' 'leave out' -- "${adapter[@]}" --lora 3
refuses 'metadata has no rank' -- "${adapter[@]}" --adapter adapted/model.safetensors
refuses 'No such file' -- "${adapter[@]}" --adapter nothere
refuses '"block.0.lora_linear.lora_a" is (2, 16), not (2, 8)' -- "${adapter[@]}" --model narrow
refuses --adapter --save 'one file' -- "${adapter[@]}" --save tuned.lora.safetensors
# Micro-batches are one batch of all of them, but for the last digits.
"${part[@]}" --steps 6 --batch 8 --log one.jsonl >out 2>err || complain "one batch: $(cat err)"
"${part[@]}" --steps 6 --batch 2 --micro 4 --log four.jsonl --save four >out 2>err || complain "--micro: $(cat err)"
loss_of() { sed 's/.*"loss":\([0-9.e+-]*\).*/\1/' "$1"; }
paste <(loss_of one.jsonl) <(loss_of four.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d < 1e-5 * $1)) exit 1; ++n } END { if (n != 6) exit 1 }' ||
  complain "4 micro-batches of 2 are not a batch of 8: $(loss_of one.jsonl) and $(loss_of four.jsonl)"
"${part[@]}" --steps 3 --batch 2 --micro 4 --save threes >out 2>err || complain "--micro: $(cat err)"
"$train_gpt" --resume threes --threads 1 --steps 6 --save threes >out 2>err || complain "resuming: $(cat err)"
cmp -s four threes || complain "micro-batches, resumed between updates, end elsewhere"

# --- layers that may be frozen -----------------------------------------------------------------------
tight=("$train_gpt" --layers 3 --heads 2 --channels 32 --context 16 --batch 2 --seed 3 --threads 1
       --text text --moments int8)
refuses 'the least known is' -- "${tight[@]:1}" --total 500KiB
"${tight[@]}" --total 500KiB --may-freeze --steps 5 --save frozen >out 2>err || complain "--may-freeze: $(cat err)"
grep -q '^frozen  *[1-4] of 5 layers, with .* of the squared norm' out && grep -q 'training all takes at least' out ||
  complain "--may-freeze does not say what is frozen: $(cat out)"
awk '/^in all/ { all = $3 } /^--total/ { total = $2 } END { exit !(all > 0 && all <= total && total == 512000) }' out ||
  complain "--may-freeze does not keep within the total: $(cat out)"
"${tight[@]}" --total 500KiB --may-freeze --steps 3 --save frozen2 >out 2>err || complain "--may-freeze: $(cat err)"
"$train_gpt" --resume frozen2 --threads 1 --steps 5 --fixed-costs --save frozen2 >out 2>err || complain "resuming it: $(cat err)"
grep -q 'M are trained' out || complain "a resumed run trains what was frozen: $(cat out)"
"${tight[@]}" --total 90% --may-freeze --steps 1 >out 2>err || complain "--may-freeze with room: $(cat err)"
grep -q '^frozen  *nothing' out && ! grep -q 'M are trained' out || complain "frozen though it fits: $(cat out)"
refuses --may-freeze 'too small for any layer' 'at least' -- "${tight[@]:1}" --total 100KiB --may-freeze
refuses --may-freeze --total -- "${tight[@]:1}" --may-freeze
refuses --may-freeze --train -- "${tight[@]:1}" --total 500KiB --may-freeze --train head
refuses --may-freeze adapters -- "${tight[@]:1}" --total 500KiB --may-freeze --lora 2
refuses --may-freeze 'goes on' -- --resume frozen --may-freeze
refuses --may-freeze 'policy is retain' -- "${tight[@]:1}" --total 500KiB --may-freeze --policy retain

# --- forward passes alone ---------------------------------------------------------------------------
forward=("$train_gpt" --layers 2 --heads 2 --channels 16 --context 16 --seed 3 --text text --forward-only
         --directions 2)
for option in --policy=retain --budget=50% --total=9MiB --optimizer=sgd --moments=int8 --micro=2; do
  refuses "${option%=*}" 'forward-only does without' -- "${small[@]}" --text text --forward-only "$option"
done
refuses --directions --forward-only -- "${small[@]}" --directions 2
refuses --directions '1 to 65536' -- "${small[@]}" --forward-only --directions 0
refuses --epsilon '"0"' -- "${small[@]}" --forward-only --epsilon 0
"${forward[@]}" --steps 7 --threads 2 --train 'block.1' --save forth >out 2>err || complain "--forward-only: $(cat err)"
grep -q '^moments  *0 bytes' out && grep -q '^gradients  *0 bytes' out && [ "$(peak out)" -lt "$(peak all)" ] ||
  complain "--forward-only holds more than an evaluation: $(cat out)"
"${forward[@]}" --steps 3 --threads 1 --train 'block.1' --save forth2 >out 2>err || complain "--forward-only: $(cat err)"
"$train_gpt" --resume forth2 --threads 1 --steps 7 --save forth2 >out 2>err || complain "resuming it: $(cat err)"
cmp -s forth forth2 || complain "--forward-only, resumed with other threads, ends elsewhere"
refuses plain AdamW forward-only -- --resume plain --forward-only
refuses forth forward-only 'is AdamW' -- --resume forth --forward-only=false
"$train_gpt" --model plain --text text --forward-only --lora 2 --threads 1 --steps 2 --save forth3 >out 2>err ||
  complain "--forward-only with adapters: $(cat err)"

# --- auto, resumed --------------------------------------------------------------------------------
# The plan evolves, and a run that is killed again and again ends with the bits of one that was not:
# plan changes, losses, parameters, moments, and all that was seen. Times are those of one profile, in
# which codecs cost next to nothing, neither time nor error: the first error that is probed belies it.
head -c 200000 "$train_gpt" >text
evolving=("$train_gpt" --layers 2 --heads 2 --channels 64 --context 64 --batch 4 --threads 1
          --text text --budget 40% --profile times --fixed-costs --seed 1)
"${evolving[@]}" --budget 100% --steps 0 >out 2>err || complain "measuring: $(cat err)"
awk '/^layer / { for (i = 8; i + 3 <= NF; i += 4) { $i = $(i+1) = 1e-6; $(i+2) = $(i+3) = 1e-12 } }
     { print }' times | "$seal_profile" >rosy && mv rosy times
"${evolving[@]}" --steps 500 --log ewhole.jsonl --save ewhole >out 2>err || complain "evolving: $(cat err)"
grep -q 'costs       read from times' out || complain "the profile was not read: $(grep costs out)"
versions=$(sed 's/.*"plan_version"://; s/[,}].*//' ewhole.jsonl | sort -un | wc -l)
[ "$versions" -gt 1 ] || complain "the plan did not evolve: $(grep plan out)"
for wait in 1 1.5 2; do
  resume=()
  [ -f epart ] && resume=(--resume epart)
  "${evolving[@]}" --steps 500 --log epart.jsonl --save epart --save-every 7 "${resume[@]}" >out 2>err &
  kill_after "$wait" $!
done
resume=()
[ -f epart ] && resume=(--resume epart)
"${evolving[@]}" --steps 500 --log epart.jsonl --save epart "${resume[@]}" >out 2>err ||
  complain "resuming while it evolves: $(cat err)"
cmp -s <(losses ewhole.jsonl) <(losses epart.jsonl) || complain "a run that evolves, resumed, has other losses"
cmp -s ewhole epart || complain "a run that evolves, resumed, ends elsewhere"
# In two halves that know nothing of each other's length; without options the checkpoint's count.
"${evolving[@]}" --steps 90 --save ehalf >out 2>err || complain "a half: $(cat err)"
"$train_gpt" --resume ehalf --threads 1 --steps 500 --save ehalf >out 2>err || complain "the other: $(cat err)"
cmp -s ewhole ehalf || complain "two halves are not the whole"
grep -q 'those of the checkpoint' out || complain "it does not say where its costs are from: $(cat out)"
# Another budget is met, another tolerance too.
"$train_gpt" --resume ewhole --threads 1 --steps 502 --budget 60% --tolerance 1e-3 >out 2>err ||
  complain "another budget: $(cat err)"
grep -q -- '--budget 60% instead of 40%' out && grep -q 'budget changed' out ||
  complain "another budget is not honoured: $(cat out)"
"$train_gpt" "${evolving[@]:1}" --budget 100% --steps 5 --save efull >out 2>err || complain "full: $(cat err)"
full=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
"$train_gpt" --resume efull --threads 1 --steps 8 --budget 40% >out 2>err || complain "less: $(cat err)"
less=$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out)
[ $((less * 100)) -le $((full * 40)) ] || complain "resumed with 40 %, it takes $less of $full bytes"
# The step before which the plan changed is not measured, and nobody says that it touched nothing.
"$train_gpt" --resume efull --threads 1 --steps 6 --budget 40% --log peak.jsonl --report peak.html >out 2>err ||
  complain "a step more, with less: $(cat err)"
grep -q 'budget changed' out || complain "no plan changed: $(cat out)"
grep -q '^activation peak, measured    not measured: the plan was made right before the last step' out &&
  grep -q '"activation_peak_bytes":null' peak.jsonl && grep -q 'not measured' peak.html ||
  complain "what the only step touched: $(grep peak out) $(cat peak.jsonl)"
# Behind set-up the process takes little beside what it holds, whatever the search for a tight plan took.
tight=("$train_gpt" --layers 4 --heads 2 --channels 64 --context 64 --batch 4 --threads 1 --text text --seed 1
       --fused --moments int8 --total 40% --steps 4)
"${tight[@]}" >out 2>err || complain "a tight plan: $(cat err)"
if echo 5 >/proc/self/clear_refs; then  # the system forgets peaks
  held=$(sed -n 's/^in all  *\([0-9]*\) bytes.*/\1/p' out)
  resident=$(sed -n 's/^resident, over before  *\([0-9]*\) bytes.*/\1/p' out)
  [ $((resident - held)) -le $((3 << 20)) ] || complain "$resident bytes are resident, $held held"
  grep -q '^resident, in set-up  *[0-9]* bytes' out || complain "what set-up took is not said: $(cat out)"
fi 2>/dev/null
# A checkpoint of auto can go on under a fixed policy, and back.
"$train_gpt" --resume ehalf --threads 1 --steps 503 --policy retain --save fixed >out 2>err ||
  complain "a fixed policy: $(cat err)"
grep -q -- '--policy retain instead of auto' out || complain "it does not say so: $(cat out)"
"$train_gpt" --resume fixed --threads 1 --steps 254 --policy auto --budget 50% >out 2>err ||
  complain "auto again: $(cat err)"

refuses whole layers -- --layers 2 --heads 2 --channels 16 --context 16 --text text --resume whole
head -c 1000 whole >bad; refuses bad truncated -- "${small[@]}" --text text --resume bad
cp whole bad; word bad 100 12345; refuses bad checksum -- "${small[@]}" --text text --resume bad
refuses model adacc -- "${small[@]}" --text text --resume model
cp whole bad; word bad 2 1; refuses bad 'version 1' -- --resume bad

# --- what cannot be written, and signals ----------------------------------------------------------
go=("$train_gpt" "${small[@]}" --text text --policy retain)
"${go[@]}" --steps 3 --save good >out 2>err || complain "three steps: $(cat err)"
# A full disk under the log does not cost the model.
"${go[@]}" --steps 3 --save kept --log /dev/full >out 2>err
[ $? -eq 2 ] && grep -q -- --log err && [ "$(wc -l <err)" -eq 1 ] || complain "a full log: $(cat err)"
cmp -s good kept || complain "a full log cost the model"
# Nor do saves that fail on the way: the last one counts.
mkdir room
"${go[@]}" --steps 100000000 --save room/kept --save-every 1 >out 2>err &
process=$!
for i in $(seq 100); do [ -f room/kept ] && break; sleep 0.1; done
until mkdir room/kept.adacc-saving 2>/dev/null; do sleep 0.01; done
for i in $(seq 100); do grep -q 'training goes on' err && break; sleep 0.1; done
rm -f room/kept; rmdir room/kept.adacc-saving
kill -TERM $process; wait $process
[ $? -eq 2 ] || complain "a save that failed leaves no trace in the status"
[ -f room/kept ] || complain "after a failed save nothing was saved any more: $(cat err)"
# Signals: whoever asks it to end gets a checkpoint.
for signal in INT:130 TERM:143 HUP:129 PIPE:141; do
  rm -f kept
  # A shell ignores SIGINT for what it starts behind itself; this gives it back.
  (trap - INT; exec "${go[@]}" --steps 100000000 --save kept --log steps.jsonl) >out 2>err &
  process=$!
  for i in $(seq 100); do [ -s steps.jsonl ] && break; sleep 0.1; done
  kill -"${signal%:*}" $process; wait $process
  status=$?
  [ "$status" -eq "${signal#*:}" ] && [ -f kept ] && grep -q 'checkpoint saved' err ||
    complain "SIG${signal%:*}: status $status, $(cat err)"
  rm -f steps.jsonl
done
rm -f kept
"${go[@]}" --steps 100000 --save kept 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" -eq 141 ] && [ -f kept ] || complain "a closed pipe: ${PIPESTATUS[0]} $(cat err)"
# Standard output that is closed or full: said, and the log keeps to itself.
"${go[@]}" --steps 3 --save kept --log closed.jsonl >&- 2>err
[ $? -eq 2 ] && cmp -s good kept || complain "a closed standard output: $(cat err)"
[ "$(grep -c '^{' closed.jsonl)" -eq 3 ] && [ "$(wc -l <closed.jsonl)" -eq 3 ] ||
  complain "the log has other lines than its own: $(cat closed.jsonl)"
"${go[@]}" --steps 3 --save kept >/dev/full 2>err
[ $? -eq 2 ] && grep -q 'standard output' err && cmp -s good kept ||
  complain "a full standard output: $(cat err)"
# A private checkpoint stays private; long names can be saved to.
chmod 600 kept && "${go[@]}" --steps 3 --save kept >out 2>err && [ "$(stat -c %a kept)" = 600 ] ||
  complain "the checkpoint's mode: $(stat -c %a kept)"
for length in 242 255; do
  name=$(printf 'n%.0s' $(seq "$length"))
  "${go[@]}" --steps 3 --save "$name" >out 2>err && cmp -s good "$name" || complain "$length: $(cat err)"
done
# A log with lines that are none is resumed all the same.
printf '{"step":"one"}\n{"step":-1}\nnonsense\n[1]\n{"step":1,"loss":5}\n{"step":7}\n' >odd.jsonl
"${go[@]}" --resume good --steps 4 --log odd.jsonl >out 2>err || complain "an odd log: $(cat err)"
[ "$(grep -c . odd.jsonl)" -eq 2 ] && grep -q '"loss":5' odd.jsonl || complain "an odd log: $(cat odd.jsonl)"

# A disk that fills while saving: the old checkpoint survives, and nothing else is left behind.
cp whole full
(
  trap '' XFSZ
  ulimit -f 8
  "$train_gpt" "${small[@]}" --text text --resume full --steps 44 --save full
) >out 2>err
[ $? -eq 2 ] || complain "saving to a full disk exits with other than 2"
[ "$(wc -l <err)" -eq 1 ] && grep -q full err || complain "a full disk: $(cat err)"
cmp -s whole full || complain "the old checkpoint did not survive a full disk"
[ "$(ls | grep -c '^full')" -eq 1 ] || complain "a half-written file is left: $(ls)"

# A loss that is not finite stops the run before it spoils the parameters or the checkpoint; the last
# finite parameters are saved, beside a checkpoint of a better time.
cp whole last
explode=(--policy retain --steps 80 --lr 1e6 --weight-decay 1e6)
"$train_gpt" "${small[@]}" --text text --resume last "${explode[@]}" --save last >out 2>err
[ $? -eq 1 ] || complain "a loss that is not finite exits with other than 1"
grep -q 'stopped before the update' err && grep -q 'are in last.last-finite; last stays as it is' err ||
  complain "a loss that is not finite: $(cat err)"
cmp -s whole last || complain "the last good checkpoint was replaced"
"$train_gpt" --resume last.last-finite --steps 10 >out 2>err || complain "last.last-finite: $(cat err)"
rm -f fresh
"$train_gpt" "${small[@]}" --text text "${explode[@]}" --save fresh >out 2>err
[ $? -eq 1 ] && grep -q 'are in fresh$' err && [ -f fresh ] && ! [ -e fresh.last-finite ] ||
  complain "a loss that is not finite, and no checkpoint before: $(cat err)"
"$train_gpt" "${small[@]}" --text text "${explode[@]}" >out 2>err
[ $? -eq 1 ] && grep -q 'before the update$' err || complain "a loss that is not finite, unsaved: $(cat err)"

# Sent to a scratch file, activations come back: the losses are those of retaining, in less memory.
larger=(--layers 2 --heads 2 --channels 64 --context 64 --batch 4 --threads 1 --seed 3 --text text)
"$train_gpt" "${larger[@]}" --steps 5 --policy retain --log retained.jsonl >out 2>err ||
  complain "retain: $(cat err)"
offload=(--budget 40% --tolerance 0 --offload .)
if "$train_gpt" "${larger[@]}" --steps 5 "${offload[@]}" --log sent.jsonl --report sent.html >out 2>err; then
  grep -q 'out and back a step' out || complain "nothing is said of the scratch file: $(cat out)"
  [ "$(losses sent.jsonl)" = "$(losses retained.jsonl)" ] || complain "offload changes losses"
  grep -q '"offload_written_bytes":[1-9]' sent.jsonl || complain "nothing was sent: $(tail -n 1 sent.jsonl)"
  for drawn in '>in the store<' '>computation<' '>link<' '<title>write_begin' '<title>read_begin' \
    'waiting for the store'; do
    grep -q "$drawn" sent.html || complain "no $drawn in the report of offloading"
  done
  grep -q '"offload_stall_ms":[0-9]' sent.jsonl || complain "no stalls are logged: $(tail -n 1 sent.jsonl)"
  "$train_gpt" "${larger[@]}" --steps 5 --budget 90% --tolerance 0 --offload . --offload-limit 64KiB \
    --log limited.jsonl >out 2>err || complain "a limit of what is sent: $(cat err)"
  "$train_gpt" "${larger[@]}" --steps 1 --budget 90% --tolerance 0 --offload . --offload-limit 48KiB >out 2>err ||
    complain "the least limit: $(cat err)"
  grep -q 'nothing is sent to the store: .* at most the 48.0 KiB' out ||
    complain "no note says that the store is of no use: $(cat out)"
  sed -n 's/.*"offload_written_bytes":\([0-9]*\).*/\1/p' limited.jsonl | awk '$1 > 65536' | grep -q . &&
    complain "more was sent than --offload-limit: $(tail -n 1 limited.jsonl)"
else
  grep -q 'scratch file\|O_TMPFILE\|O_DIRECT' err || complain "--offload: $(cat err)"
fi
refuses offload nothere -- "${larger[@]}" --steps 1 --offload nothere
# Moments in a scratch file: the same losses and checkpoints, in less memory.
stored=(--policy retain --moments bf16 --fused --steps 5)
"$train_gpt" "${larger[@]}" "${stored[@]}" --log inside.jsonl --save inside >out 2>err ||
  complain "moments in bf16: $(cat err)"
before=$(held out)
if "$train_gpt" "${larger[@]}" "${stored[@]}" --moments-store . --log away.jsonl --save away >out 2>err; then
  grep -q '^moments  *\. by .*in and out again a step' out || complain "--moments-store says: $(cat out)"
  [ "$(losses away.jsonl)" = "$(losses inside.jsonl)" ] || complain "--moments-store changes losses"
  [ "$(held out)" -lt "$before" ] || complain "--moments-store holds $(held out), else $before"
  for from in inside away; do
    "$train_gpt" --resume $from --steps 7 --moments-store . --log $from.more >out 2>err ||
      complain "--moments-store, from $from: $(cat err)"
  done
  [ "$(losses inside.more)" = "$(losses away.more)" ] || complain "--moments-store resumes with other losses"
else
  grep -q 'scratch file\|O_TMPFILE\|O_DIRECT' err || complain "--moments-store: $(cat err)"
fi
# Parameters in bf16: half of the bytes, other losses than fp32 has, the same ones from a checkpoint; fp32
# goes on from there, and back.
short=(--parameters bf16 --policy recompute --fused)
"$train_gpt" "${larger[@]}" "${short[@]}" --steps 7 --sample 3 --log short.jsonl >out 2>err ||
  complain "--parameters bf16: $(cat err)"
grep -q '^parameters .* in bf16' out || complain "--parameters bf16 says: $(cat out)"
short_bytes=$(sed -n 's/^parameters  *\([0-9]*\) bytes.*/\1/p' out)
awk '/^activation peak/ { peak[++n] = $4 } END { exit !(n == 2 && peak[1] == peak[2]) }' out ||
  complain "the peak is not as predicted: $(cat out)"
"$train_gpt" "${larger[@]}" --policy recompute --fused --steps 1 >out 2>err || complain "$(cat err)"
[ $((2 * short_bytes)) -eq "$(sed -n 's/^parameters  *\([0-9]*\) bytes.*/\1/p' out)" ] ||
  complain "$short_bytes bytes of parameters are not half: $(cat out)"
"$train_gpt" "${larger[@]}" "${short[@]}" --steps 5 --save short >out 2>err || complain "$(cat err)"
cp short other
"$train_gpt" --resume short --steps 7 --log more.jsonl >out 2>err || complain "bf16 resumes: $(cat err)"
[ "$(losses more.jsonl)" = "$(losses short.jsonl | tail -n 2)" ] || complain "bf16 resumes with other losses"
"$train_gpt" --resume other --parameters fp32 --steps 6 --save other >out 2>err ||
  complain "from bf16 to fp32: $(cat err)"
grep -q -- '--parameters fp32 instead of bf16' out || complain "another form is not announced: $(cat out)"
"$train_gpt" --resume other --parameters bf16 --steps 7 --save other >out 2>err ||
  complain "from fp32 to bf16: $(cat err)"
"$train_gpt" --model other --text text --parameters bf16 --steps 1 >out 2>err ||
  complain "a model that is held in bf16: $(cat err)"
refuses --parameters fp32 bf16 -- --parameters int8
refuses --parameters adamw -- "${small[@]}" --parameters bf16 --optimizer adafactor
refuses --parameters --forward-only -- "${small[@]}" --parameters bf16 --forward-only
refuses --parameters --may-freeze -- "${small[@]}" --parameters bf16 --may-freeze --budget 50%
refuses --parameters --shards -- "${small[@]}" --parameters bf16 --shards 2
refuses --parameters --pipeline -- "${small[@]}" --parameters bf16 --pipeline 1
# Activations in bf16: half the arena, losses beside those of fp32, and checkpoints that go on either way.
wide=(--layers 4 --heads 2 --channels 64 --context 64 --batch 8 --threads 2 --seed 3)
for precision in fp32 bf16; do
  "$train_gpt" "${wide[@]}" --text text --policy retain --steps 6 --precision $precision \
    --log log.$precision --save of.$precision --sample 4 >out.$precision 2>err ||
    complain "--precision $precision: $(cat err)"
done
predicted() { sed -n 's/.*predicted *\([0-9]*\) bytes.*/\1/p' "$1"; }
[ $((10 * $(predicted out.bf16))) -lt $((6 * $(predicted out.fp32))) ] ||
  complain "bf16 takes $(predicted out.bf16) bytes, fp32 $(predicted out.fp32)"
[ "$(sed -n 's/.*measured *\([0-9]*\) bytes.*/\1/p' out.bf16)" = "$(predicted out.bf16)" ] ||
  complain "bf16 touches other bytes than predicted: $(cat out.bf16)"
paste log.fp32 log.bf16 | awk -F'"loss":' '{split($2, a, ","); split($3, b, ","); d = a[1] - b[1];
  if (d > 0.02 || d < -0.02) exit 1; same += d == 0} END {exit same == NR}' ||
  complain "losses of bf16: $(paste log.fp32 log.bf16)"
"$train_gpt" --text text --batch 8 --resume of.bf16 --steps 8 >out 2>err ||
  complain "bf16 goes on: $(cat err)"
[ "$(predicted out)" = "$(predicted out.bf16)" ] || complain "a resumed run is not in bf16: $(cat out)"
"$train_gpt" --text text --batch 8 --resume of.fp32 --steps 8 --precision bf16 >out 2>err ||
  complain "bf16 goes on from fp32: $(cat err)"
"$train_gpt" --text text --batch 8 --resume of.bf16 --steps 8 --precision fp32 >out 2>err ||
  complain "fp32 goes on from bf16: $(cat err)"
"$train_gpt" "${wide[@]}" --text text --precision bf16 --budget 60% --parts 2 --steps 3 >out 2>err ||
  complain "auto in bf16: $(cat err)"
"$train_gpt" "${wide[@]}" --text text --precision bf16 --lora 2 --shards 2 --steps 2 >out 2>err ||
  complain "adapters and shards in bf16: $(cat err)"
"$train_gpt" "${wide[@]}" --text text --precision bf16 --forward-only --steps 2 >out 2>err ||
  complain "--forward-only in bf16: $(cat err)"
refuses --precision fp32 bf16 -- --precision fp16
# A pipeline in bf16: the losses of one rank, half the arena of fp32's, and a checkpoint that goes on in fp32.
staged=("${wide[@]}" --text text --micro 2 --tolerance 0 --fixed-costs --steps 3)
"$train_gpt" "${staged[@]}" --precision bf16 --untied-head --shards 1 --log of.one >out 2>err ||
  complain "one rank for a pipeline: $(cat err)"
arena_of() { sed -n 's/.*of that \([0-9.]*\) MiB of arena.*/\1/p' "$1"; }
for precision in fp32 bf16; do
  "$train_gpt" "${staged[@]}" --precision $precision --pipeline 1 --log of.stages --save of.stages.run >out.$precision 2>err ||
    complain "a pipeline in $precision: $(cat err)"
done
[ "$(losses of.one)" = "$(losses of.stages)" ] || complain "a pipeline in bf16 has other losses than one rank"
awk -v bf16="$(arena_of out.bf16)" -v fp32="$(arena_of out.fp32)" 'BEGIN {exit !(0 < bf16 && bf16 < 0.6 * fp32)}' ||
  complain "arenas of pipelines: $(cat out.fp32 out.bf16)"
"$train_gpt" --resume of.stages.run --pipeline 1 --steps 4 >out 2>err || complain "a pipeline in bf16 goes on: $(cat err)"
[ "$(arena_of out)" = "$(arena_of out.bf16)" ] || complain "a resumed pipeline is not in bf16: $(cat out)"
"$train_gpt" --resume of.stages.run --precision fp32 --pipeline 1 --steps 5 >out 2>err ||
  complain "a pipeline in fp32 goes on from bf16: $(cat err)"
[ "$(arena_of out)" = "$(arena_of out.fp32)" ] || complain "a resumed pipeline is not in fp32: $(cat out)"
refuses moments-store nothere -- "${larger[@]}" --steps 1 --moments-store nothere
refuses 'moments-store' 'it needs' -- "${larger[@]}" --steps 1 --moments-store . --moments-window 4KiB
refuses --offload-limit -- "${larger[@]}" --steps 1 --offload-limit 1MiB

# Piped, the output is plain lines; --sample gives the bytes asked for.
"$train_gpt" "${small[@]}" --text text --steps 2 --sample 20 --val text >out 2>err
[ ! -s err ] || complain "a good run wrote to standard error: $(cat err)"
grep -q $'\x1b' out && complain "escape sequences in piped output"
grep -q 'val loss' out || complain "no validation loss"
refuses_empty_values
explains device pinned parameters model adapter layers heads channels context tokens text batch seq steps lr forward-only directions epsilon weight-decay clip \
    warmup min-lr seed threads policy budget tolerance may-freeze solver offload offload-limit plan-threads fixed-costs profile report log save save-every resume sample val val-every

finish
