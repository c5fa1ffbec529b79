#!/bin/bash
# SPDX-License-Identifier: MIT
# A tiny language model tuned, resumed, talked to and exported; and what is wrong with files, named.
# Usage: chat_tune_test.sh CHAT_TUNE WRITE_LANGUAGE_MODEL
# chat_tune_folder_test.sh has models of other forms.
write_model=$(realpath "$2")
source "$(dirname "$0")/command_line.sh"

"$write_model" llama model.gguf || complain "no model"
# The answer to a letter is the letter twice.
for i in {0..59}; do
  x=$(printf "\\$(printf '%03o' $((97 + i * 7 % 26)))")
  printf '[{"role": "user", "content": "%s%d"}, {"role": "assistant", "content": "%s%s"}]\n' "$x" $((i % 5)) "$x" "$x"
done >talk.jsonl
# with OPTION VALUE...: sets `run` to a usual run, with other values of some options (-: without the option), and more of
# them; and with the flags in `flags`.
flags=()
with() {
  local -A usual=([--model]=model.gguf [--data]=talk.jsonl [--context]=48 [--batch]=2 [--rank]=4 [--lr]=2e-2
                  [--threads]=2 [--held-out]=0.2)
  while [ $# -gt 0 ]; do usual[$1]=$2; shift 2; done
  run=(tune)
  local option
  for option in "${!usual[@]}"; do [ "${usual[$option]}" = - ] || run+=("$option" "${usual[$option]}"); done
  run+=("${flags[@]}")
}

# value NAME FILE: of the last line of a log.
value() { tail -n 1 "$2" | grep -oE "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }

with --steps 24 --micro 2 --budget 60% --tolerance 0 --match 3 --evaluate-every 8 --out tuned.safetensors --log whole.jsonl \
  --save whole.ckpt --report page.html
"$program" "${run[@]}" >out 2>err || complain "tune: $(cat err)"
for words in 'documents   ' 'plan        budget' 'before      held-out loss' 'of 3 answers' 'after       held-out loss' 'resident'; do
  grep -qF "$words" out || complain "'$words' is not in $(cat out)"
done
[ "$(wc -l <whole.jsonl)" -eq 25 ] || complain "$(wc -l <whole.jsonl) lines of log"
awk "BEGIN { exit !($(value held_out_after whole.jsonl) < 0.7 * $(value held_out_before whole.jsonl)) }" ||
  complain "a held-out loss of $(value held_out_after whole.jsonl), before $(value held_out_before whole.jsonl)"
grep -q '<svg' page.html || complain "a page without a picture"
best=$(grep -oE 'best was [0-9.]+' out | grep -oE '[0-9.]+$')
with --steps 0 --adapter tuned.safetensors
"$program" "${run[@]}" >out 2>err || complain "no step: $(cat err)"
grep -q "before  *held-out loss $best" out || complain "the loss was $best when the adapters were written: $(cat out err)"
# In the order of the file, batches are the same for all seeds.
first_loss() {
  with --steps 1 --adapter tuned.safetensors --log first.jsonl "$@"
  "$program" "${run[@]}" >out 2>err || complain "one step: $(cat err)"
  head -n 1 first.jsonl | grep -oE '"loss":[^,}]*'
}
[ "$(first_loss --order file --seed 3)" = "$(first_loss --order file --seed 4)" ] || complain "a seed changes the order of a file"
[ "$(first_loss --seed 3)" != "$(first_loss --seed 4)" ] || complain "two seeds, one order"
# Stopped and resumed, it goes on bit for bit. Plans follow times, which differ: without loss they have the same bits.
with --steps 24 --micro 2 --budget 60% --tolerance 0 --save half.ckpt --log half.jsonl --save-every 10
"$program" "${run[@]}" >out 2>err &
tuning=$!
until [ -e half.ckpt ] || ! kill -0 $tuning 2>/dev/null; do sleep 0.01; done
kill -KILL $tuning 2>/dev/null
wait $tuning 2>/dev/null
"$program" "${run[@]}" --resume half.ckpt >out 2>err || complain "resume: $(cat err)"
cmp <(grep grad_norm whole.jsonl | sed 's/"ms":[^}]*//') <(grep grad_norm half.jsonl | sed 's/"ms":[^}]*//') ||
  complain "a run that was resumed differs"

# Talk: the same words for the same seed, greedy or drawn, with what was tuned.
talk() { "$program" talk --model model.gguf --threads 1 --context 80 --tokens 12 "$@" 2>err || complain "talk: $(cat err)"; }
talk --prompt k2 >before
talk --prompt k2 --adapter tuned.safetensors >after
cmp -s before after && complain "tuned, it says the same: $(cat after)"
cmp <(talk --prompt k2 --temperature 1 --top-p 0.9 --seed 4) <(talk --prompt k2 --temperature 1 --top-p 0.9 --seed 4) ||
  complain "one seed, two answers"
"$program" talk --model model.gguf --weights nf4 --prompt k2 >out 2>err && complain "rows of 32 in nf4"
grep -q 'no matrix' err || complain "rows of 32 in nf4: $(cat err)"
"$program" talk --model model.gguf --weights int3 --prompt k2 >out 2>err && complain "weights in int3"
grep -q -- '--weights' err || complain "weights in int3: $(cat err)"
printf 'k2\nb1\n' | talk >read
[ "$(wc -l <read)" -ge 2 ] || complain "two lines, and: $(cat read)"
cmp <(head -n 1 read) <(head -n 1 before) || complain "lines are read in other words than prompts"
long=$(printf 'a%.0s' {1..70})
"$program" talk --model model.gguf --context 80 --prompt "$long" >out 2>err && complain "a full context"
grep -q 'context of 80 tokens' err || complain "a full context: $(cat err)"
printf '%s\nb\nc\nd\n' "${long:10}" | talk --forget >out
[ "$(wc -l <out)" -ge 4 ] || complain "a context that forgets: $(cat out)"

# refuses_run WORDS... -- OPTION VALUE...: refuses() a usual run with these options.
refuses_run() {
  local words=()
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  with "$@"
  refuses "${words[@]}" -- "${run[@]}"
}

# What is exported is a model of the Hub.
"$program" export --model model.gguf --adapter tuned.safetensors --out merged >out 2>err || complain "export: $(cat err)"
[ -s merged/model.safetensors ] && grep -q '"llama"' merged/config.json || complain "nothing exported"
"$program" export --model model.gguf --adapter tuned.safetensors --out merged.gguf --type F32 >out 2>err ||
  complain "export: $(cat err)"
cmp after <("$program" talk --model merged.gguf --threads 1 --context 80 --tokens 12 --prompt k2 2>err) ||
  complain "merged, it says something else: $(cat err)"
"$program" export --model model.gguf --adapter tuned.safetensors --out lora.gguf --adapters >out 2>err ||
  complain "export: $(cat err)"
[ -s lora.gguf ] || complain "no adapters exported"
refuses --adapters gguf -- export --model model.gguf --adapter tuned.safetensors --out merged --adapters
refuses model.gguf another -- export --model model.gguf --adapter tuned.safetensors --out model.gguf

# In bf16 activations take less, and it learns as well.
learns() { awk "BEGIN { exit !($(value held_out_after "$1") < 0.7 * $(value held_out_before "$1")) }"; }
# peak LOG: bytes of activations.
peak() { value activation_peak_bytes "$1"; }
with --steps 24 --micro 2 --log half.jsonl --precision bf16 --match 1
"$program" "${run[@]}" >out 2>err || complain "in bf16: $(cat err)"
with --steps 24 --micro 2 --log full.jsonl
"$program" "${run[@]}" >out 2>err || complain "retained: $(cat err)"
learns half.jsonl || complain "nothing learnt in bf16: $(tail -n 1 half.jsonl)"
awk "BEGIN { exit !($(peak half.jsonl) < 0.9 * $(peak full.jsonl)) }" ||
  complain "in bf16 $(peak half.jsonl) bytes, in fp32 $(peak full.jsonl)"

# With --budget smallest, and without --parts, layers are cut into as many parts as take the least.
smallest() { # OPTION VALUE...: the budget
  with --steps 1 --batch 16 --budget smallest "$@"
  "$program" "${run[@]}" >out 2>err || complain "smallest, $*: $(cat err)"
  sed -n 's/^plan *budget \([0-9.]*\) MiB.*/\1/p' out
}
whole=$(smallest --parts 1)
least=$(for parts in 2 4 8; do smallest --parts $parts; done | sort -g | head -n 1)
awk "BEGIN { exit !($least < $whole) }" || complain "parts take $least MiB, and layers as a whole $whole"
[ "$(smallest)" = "$least" ] || complain "the smallest budget is not $least: $(cat out)"
# It leaves weights to their file. With them in the process all bits are the same, in tune and in talk.
grep -q 'at a time' out || complain "--budget smallest holds all weights: $(cat out)"
with --steps 2 --tolerance 0 --log streamed.jsonl --budget smallest
"$program" "${run[@]}" >out 2>err || complain "streamed: $(cat err)"
with --steps 2 --tolerance 0 --log resident.jsonl --budget smallest --weight-pages resident
"$program" "${run[@]}" >out 2>err || complain "resident: $(cat err)"
grep -q 'at a time' out && complain "resident weights are streamed: $(cat out)"
cmp <(grep -o '"loss":[^,]*' streamed.jsonl) <(grep -o '"loss":[^,]*' resident.jsonl) || complain "streamed weights learn otherwise"
cmp before <(talk --prompt k2 --weight-pages streamed) || complain "streamed weights talk otherwise"

# All weights are tuned, in each form. What is written talks as what was trained, and memory is what the forms say.
memory() { sed -n 's/^memory *\([0-9.]*\) MiB.*/\1/p' "$1"; }
tunes_all() { # LOG OPTION VALUE...
  local log=$1; shift
  with --rank - --steps 24 --lr 1e-2 --log "$log" "$@"
  run+=(--full)
}
tunes_all whole.jsonl --out whole.gguf --type F32 --match 2
"$program" "${run[@]}" >wide 2>err || complain "all weights: $(cat err)"
learns whole.jsonl || complain "all weights learnt nothing: $(tail -n 1 whole.jsonl)"
grep -q '^weights .* M numbers are trained' wide || complain "all weights: $(cat wide)"
flags=(--fused)
tunes_all small.jsonl --out small.gguf --parameters bf16 --moments int8 --precision bf16 --clip-by previous --type BF16 --match 2
"$program" "${run[@]}" >narrow 2>err || complain "all weights in bf16: $(cat err)"
learns small.jsonl || complain "all weights in bf16 learnt nothing: $(tail -n 1 small.jsonl)"
grep -q 'gradients 0.0' narrow || complain "fused, with gradients: $(cat narrow)"
awk "BEGIN { exit !($(memory narrow) < 0.8 * $(memory wide)) }" ||
  complain "in small forms $(memory narrow) MiB, else $(memory wide)"
for model in whole small; do
  "$program" talk --model "$model.gguf" --threads 1 --context 80 --tokens 12 --prompt k2 >after_all 2>err || complain "talk to $model.gguf: $(cat err)"
  cmp -s before after_all && complain "$model.gguf says what was said before"
done
tunes_all again.jsonl --steps 6 --parameters bf16 --moments int8 --clip-by previous --save whole_model.ckpt
"$program" "${run[@]}" >out 2>err || complain "a checkpoint of all weights: $(cat err)"
tunes_all more.jsonl --steps 8 --parameters bf16 --moments int8 --clip-by previous --resume whole_model.ckpt
"$program" "${run[@]}" >out 2>err || complain "all weights resumed: $(cat err)"
[ "$(grep -c grad_norm more.jsonl)" -eq 2 ] || complain "resumed at another step: $(cat more.jsonl)"
# A total below the need of retaining everything is held.
total=$(awk "BEGIN { print int(1048576 * 0.9 * $(memory narrow)) }")
tunes_all total.jsonl --steps 1 --parameters bf16 --moments int8 --clip-by previous --total "${total}B"
"$program" "${run[@]}" >out 2>err || complain "a total of $total: $(cat err)"
awk "BEGIN { exit !(($(memory out) - 0.05) * 1048576 <= $total) }" || complain "$(memory out) MiB of a total of $total bytes"
flags=()
# Killed and resumed, all weights have the bits of a run that went on, in each form. Without held-out conversations the last model
# is written.
for form in "--clip 0.5" "--fused --parameters bf16 --moments int8 --clip-by previous" "--moments bf16 --micro 2"; do
  flags=()
  case $form in --fused*) flags=(--fused) ;; esac
  read -ra more <<<"${form#--fused }"
  all=(--held-out 0 --steps 150 --lr 1e-3 --tolerance 0 --budget 60% --type F32 "${more[@]}")
  tunes_all through.jsonl "${all[@]}" --out through.gguf
  "$program" "${run[@]}" >out 2>err || complain "all weights, $form: $(cat err)"
  for _ in 1 2 3 4 5; do  # once more if it came to its end before it was killed
    rm -f killed.ckpt resumed.jsonl
    tunes_all killed.jsonl "${all[@]}" --out killed.gguf --save killed.ckpt --save-every 10
    "$program" "${run[@]}" >out 2>err &
    tuning=$!
    until [ -e killed.ckpt ] || ! kill -0 $tuning 2>/dev/null; do sleep 0.01; done
    kill -KILL $tuning 2>/dev/null
    wait $tuning 2>/dev/null
    tunes_all resumed.jsonl "${all[@]}" --out resumed.gguf --resume killed.ckpt
    "$program" "${run[@]}" >out 2>err || complain "all weights resumed, $form: $(cat err)"
    [ "$(grep -c grad_norm resumed.jsonl)" -gt 0 ] && break
  done
  [ "$(grep -c grad_norm resumed.jsonl)" -gt 0 ] || complain "never killed before its end, $form"
  cmp through.gguf resumed.gguf || complain "all weights differ in a run that was killed and resumed, $form"
done
flags=()
# refuses_all WORDS... -- OPTION VALUE...: refuses() to tune all weights with these options.
refuses_all() {
  local words=()
  while [ "$1" != -- ]; do words+=("$1"); shift; done
  shift
  tunes_all none.jsonl "$@"
  refuses "${words[@]}" -- "${run[@]}"
}
refuses_all --alpha --full -- --alpha 4
refuses_run --alpha nan -- --alpha nan
refuses_run --alpha -- --alpha 0
refuses_all --adapter --full -- --adapter tuned.safetensors
refuses_all --weights --full -- --weights nf4
refuses_all --weight-pages --full -- --weight-pages streamed
refuses_all --out .gguf -- --out x.safetensors
refuses_all --type --out -- --type F32
refuses_all "would replace" -- --out model.gguf
refuses_all --rank --full -- --rank 8
refuses_run --type --full -- --type F32 --out x.safetensors
refuses_run --parameters --full -- --parameters bf16
refuses_run --out .gguf -- --out x.gguf
flags=(--fused)
refuses_run --clip --fused previous --
refuses_run --micro --fused -- --micro 2 --clip 0
flags=()
refuses_run --clip-by -- --clip 0 --clip-by previous
refuses_run --precision -- --precision fp16
refuses_run --moments -- --moments int4
refuses_run "all weights" LoRA -- --resume whole_model.ckpt

sed '3s/"role"/role/' talk.jsonl >bad.jsonl
refuses_run "line 3" "column 3" -- --data bad.jsonl
sed '4s/"content": "[a-z]*"/"content": 5/' talk.jsonl >bad.jsonl
refuses_run "line 4" "message 1" content -- --data bad.jsonl
sed '5s/"user"/"teacher"/' talk.jsonl >bad.jsonl
refuses_run "line 5" teacher -- --data bad.jsonl
echo '{"role": "user"}' >bad.jsonl
refuses_run "line 1" messages -- --data bad.jsonl
{ cat talk.jsonl; printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "%s"}]}\n' "$long"; } >long.jsonl
refuses_run "line 61" "--long cut" -- --data long.jsonl --long refuse
with --data long.jsonl --steps 1
"$program" "${run[@]}" >out 2>err || complain "cut: $(cat err)"
grep -q '1 cut to a sequence' out || complain "nothing cut: $(cat out)"
cat talk.jsonl >text.txt
with --data text.txt --steps 1
"$program" "${run[@]}" >out 2>err || complain "a text: $(cat err)"
refuses_run "--budget" -- --budget 0%
refuses_run smallest "1.0 KiB" -- --budget 1KiB
refuses_run total -- --total 10KiB
refuses_run "model's context of 96" -- --context 97
refuses_run nowhere.gguf -- --model nowhere.gguf
refuses_run nowhere.jsonl -- --data nowhere.jsonl
refuses_run --template -- --template vicuna
refuses_run --out "no folder" -- --out nowhere/x.safetensors
refuses_run "would replace" -- --log model.gguf
refuses_run rank -- --rank 33
head -c 2000 model.gguf >short.gguf
refuses short.gguf -- talk --model short.gguf --prompt x
refuses subcommand --
finish
