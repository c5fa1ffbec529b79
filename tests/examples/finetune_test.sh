#!/bin/bash
# SPDX-License-Identifier: MIT
# A tiny encoder tuned under several budgets, saved and read again; and what is wrong with files, named.
# Usage: finetune_test.sh FINETUNE WRITE_ENCODER
write_encoder=$(realpath "$2")
source "$(dirname "$0")/command_line.sh"

letters=(a b c d e f g h i j k l m n o p q r s t u v w x y z)
mkdir model
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' "${letters[@]}" >model/vocab.txt
"$write_encoder" model 30 || complain "no model"
# The first text has three letters, the second the same in other order among others.
for i in {0..119}; do
  x=${letters[i % 26]} y=${letters[i * 7 % 26]} z=${letters[i * 11 % 25]}
  printf 'file%d\t%s %s %s\tq %s w %s e %s\n' $((i / 4)) "$x" "$y" "$z" "$z" "$x" "$y"
done >pairs.tsv
small=(--seq 12 --batch 8 --steps 30 --lr 3e-3 --held-out 20 --threads 2)
of_model=(--model model --pairs pairs.tsv "${small[@]}")

# value NAME FILE: of the last line of a log.
value() { tail -n 1 "$2" | grep -oE "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }

for budget in 100% 60% smallest; do
  "$program" "${of_model[@]}" --budget "$budget" --log log.jsonl --save tuned >out 2>err ||
    complain "$budget: $(cat err)"
  peak=$(value peak_bytes log.jsonl) retain=$(value retain_peak_bytes log.jsonl)
  [ "$(wc -l <log.jsonl)" -eq 31 ] || complain "$budget: $(wc -l <log.jsonl) lines of log"
  case $budget in
    100%) most=$retain ;;
    60%) most=$((retain * 6 / 10)) ;;
    smallest) most=$((retain * 55 / 100)) ;;
  esac
  [ "$peak" -le "$most" ] || complain "$budget: a peak of $peak, where $most are allowed"
  # {"after":{"first":..,"reciprocal_rank":..},"before":{..}, ...}
  read -r after before <<<"$(tail -n 1 log.jsonl | grep -oE '"reciprocal_rank":[^,}]*' | cut -d: -f2 | tr '\n' ' ')"
  awk "BEGIN { exit !($after > $before) }" || complain "$budget: $before before, $after after"
  # What was saved is what was judged last.
  "$program" --model tuned --pairs pairs.tsv --seq 12 --batch 8 --held-out 20 --threads 2 --steps 1 \
    --log again.jsonl >out 2>err || complain "tuned: $(cat err)"
  saved=$(tail -n 1 again.jsonl | grep -oE '"reciprocal_rank":[^,}]*' | tail -n 1 | cut -d: -f2)
  [ "$saved" = "$after" ] || complain "$budget: saved with $after, read with $saved"
done
"$program" "${of_model[@]}" --log one.jsonl >out 2>err
"$program" "${of_model[@]}" --log two.jsonl >out 2>err
cmp <(sed 's/"ms":[^,}]*//' one.jsonl) <(sed 's/"ms":[^,}]*//' two.jsonl) || complain "two runs differ"

# Activations in bf16: half the memory, where activations outweigh workspaces, and tuned as well.
large=(--model model --pairs pairs.tsv --seq 12 --batch 64 --steps 1 --held-out 20 --threads 2)
"$program" "${large[@]}" --log large.jsonl >out 2>err || complain "$(cat err)"
"$program" "${large[@]}" --precision bf16 --log large_half.jsonl >out 2>err || complain "bf16: $(cat err)"
[ $((10 * $(value retain_peak_bytes large_half.jsonl))) -lt $((7 * $(value retain_peak_bytes large.jsonl))) ] ||
  complain "bf16 takes $(value retain_peak_bytes large_half.jsonl) of $(value retain_peak_bytes large.jsonl) bytes"
"$program" "${of_model[@]}" --precision bf16 --log half.jsonl >out 2>err || complain "bf16: $(cat err)"
read -r after before <<<"$(tail -n 1 half.jsonl | grep -oE '"reciprocal_rank":[^,}]*' | cut -d: -f2 | tr '\n' ' ')"
awk "BEGIN { exit !($after > $before) }" || complain "bf16: $before before, $after after"
refuses --precision fp32 bf16 -- "${of_model[@]}" --precision int8
refuses --budget -- "${of_model[@]}" --budget 0%
refuses smallest "1.0 KiB" -- "${of_model[@]}" --budget 1KiB
refuses --seq 32 -- --model model --pairs pairs.tsv --seq 33
refuses --pairs -- --model model
refuses nowhere -- --model nowhere --pairs pairs.tsv "${small[@]}"
refuses --save "--model" -- "${of_model[@]}" --save model
refuses --log -- "${of_model[@]}" --log nowhere/log
printf 'a\tb\tc\nd\te\n' >short.tsv
refuses "fewer than three columns" "line 2" -- --model model --pairs short.tsv "${small[@]}"
head -n 40 pairs.tsv | sed 's/file[0-9]*/one/' >one_group.tsv
refuses --pairs "held out" -- --model model --pairs one_group.tsv "${small[@]}"
cp -r model other
sed -i 's/"gelu"/"relu"/; s/"bert"/"gpt2"/; s/"intermediate_size": 32/"intermediate_size": 0/' other/config.json
"$program" --model other --pairs pairs.tsv "${small[@]}" >out 2>err && complain "a model that is none"
for what in model_type hidden_act intermediate_size; do
  grep -q "^finetune: $what is" err || complain "$what is not in: $(cat err)"
done
cp model/config.json other
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/; s/"max_position_embeddings": 32/"max_position_embeddings": 48/' \
  other/config.json
"$program" --model other --pairs pairs.tsv "${small[@]}" >out 2>err && complain "a model with more layers than its file"
[ "$(grep -c '"encoder.layer.2.*" is missing' err)" -eq 16 ] || complain "not all missing: $(cat err)"
grep -q '"embeddings.position_embeddings.weight" is (32, 16), not (48, 16)' err || complain "$(cat err)"
refuses_empty_values
explains model pairs budget batch seq steps lr tolerance seed threads log save
finish
