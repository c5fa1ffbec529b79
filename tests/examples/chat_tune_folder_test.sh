#!/bin/bash
# SPDX-License-Identifier: MIT
# A tiny Llama and a tiny GPT-2, as a GGUF file and as a folder of the Hugging Face Hub: both forms of one model learn, talk and are
# written with the same bits; and what is wrong with a folder, named.
# Usage: chat_tune_folder_test.sh CHAT_TUNE WRITE_LANGUAGE_MODEL
write_model=$(realpath "$2")
source "$(dirname "$0")/command_line.sh"

for i in {0..59}; do
  x=$(printf "\\$(printf '%03o' $((97 + i * 7 % 26)))")
  printf '[{"role": "user", "content": "%s%d"}, {"role": "assistant", "content": "%s%s"}]\n' "$x" $((i % 5)) "$x" "$x"
done >talk.jsonl
value() { tail -n 1 "$2" | grep -oE "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }
learns() { awk "BEGIN { exit !($(value held_out_after "$1") < 0.8 * $(value held_out_before "$1")) }"; }
# tunes MODEL OPTION...: a usual run.
tunes() {
  "$program" tune --model "$1" --data talk.jsonl --context 48 --batch 2 --threads 2 --held-out 0.2 --steps 24 --tolerance 0 \
    --budget 60% "${@:2}" >out 2>err || complain "tune $*: $(cat err)"
}
talks() { "$program" talk --model "$1" --threads 1 --context 80 --tokens 12 --prompt k2 "${@:2}" 2>err || complain "talk $*: $(cat err)"; }
steps_of() { grep grad_norm "$1" | sed 's/"ms":[^}]*//'; }
exports() { "$program" export "$@" >out 2>err || complain "export $*: $(cat err)"; }

for family in llama gpt2; do
  mkdir $family
  "$write_model" $family $family.gguf || complain "no $family.gguf"
  "$write_model" $family $family || complain "no folder $family"
  for model in $family.gguf $family; do
    tunes $model --rank 4 --lr 2e-2 --out "tuned_$model.safetensors" --log "$model.jsonl"
    [ "$family" = llama ] && wanted=Llama || wanted=GPT-2
    grep -q "^model *$wanted, layers 2, channels 32, LoRA of rank 4" out || complain "$model: $(cat out)"
    learns "$model.jsonl" || complain "$model learnt nothing: $(tail -n 1 "$model.jsonl")"
    talks $model >"before_$model"
    talks $model --adapter "tuned_$model.safetensors" >"after_$model"
    exports --model $model --adapter "tuned_$model.safetensors" --out "merged_${model/./_of_}"
    exports --model $model --adapter "tuned_$model.safetensors" --out "lora_$model.gguf" --adapters
  done
  cmp <(steps_of $family.gguf.jsonl) <(steps_of $family.jsonl) || complain "$family learns otherwise from a folder"
  cmp tuned_$family.gguf.safetensors tuned_$family.safetensors || complain "adapters of $family differ"
  cmp before_$family.gguf before_$family || complain "$family talks otherwise from a folder"
  cmp after_$family.gguf after_$family || complain "tuned, $family talks otherwise from a folder"
  cmp -s before_$family after_$family && complain "tuned, $family says the same: $(cat after_$family)"
  cmp lora_$family.gguf.gguf lora_$family.gguf || complain "adapters of $family differ as GGUF"
  cmp merged_${family}_of_gguf/model.safetensors merged_$family/model.safetensors || complain "merged, $family differs"
  # A folder is written with its tokenizer, and is a model again; so is a GGUF file. Either is written as the other.
  cmp after_$family <(talks merged_$family) || complain "merged, $family says something else"
  cmp after_$family <(talks merged_${family}_of_gguf) || complain "merged of GGUF in a folder, $family says something else"
  exports --model $family.gguf --adapter tuned_$family.safetensors --out merged_$family.f32.gguf --type F32
  cmp after_$family <(talks merged_$family.f32.gguf) || complain "merged as GGUF, $family says something else"
  exports --model $family --adapter tuned_$family.safetensors --out merged_of_folder.gguf --type F32
  cmp after_$family <(talks merged_of_folder.gguf) || complain "a folder merged as GGUF, $family says something else"
  exports --model $family --out as_it_is.gguf --type F32
  cmp before_$family <(talks as_it_is.gguf) || complain "a folder as GGUF, $family says something else"
  exports --model as_it_is.gguf --out back_$family
  cmp before_$family <(talks back_$family) || complain "a GGUF file of a folder in a folder, $family says something else"
  cmp <("$program" talk --model $family --template plain --prompt k2 --threads 1 --context 80 --tokens 12 2>err) \
    <("$program" talk --model back_$family --template plain --prompt k2 --threads 1 --context 80 --tokens 12 2>err) ||
    complain "a plain talk to $family ends otherwise"

  tunes $family --full --lr 1e-2 --out all_$family --log all.jsonl
  learns all.jsonl || complain "all weights of $family learnt nothing: $(tail -n 1 all.jsonl)"
  tunes $family.gguf --full --lr 1e-2 --out all_$family.gguf --type F32
  cmp <(talks all_$family) <(talks all_$family.gguf) || complain "all weights of $family differ in a folder"
  tunes $family --full --lr 1e-2 --out all_of_folder.gguf --type F32
  cmp <(talks all_$family) <(talks all_of_folder.gguf) || complain "all weights of a folder of $family differ as GGUF"
  cmp -s before_$family <(talks all_$family) && complain "all weights of $family say the same"
  tunes $family --full --lr 1e-2 --parameters bf16 --moments int8 --clip-by previous --out half_$family
  [ "$(stat -c %s half_$family/model.safetensors)" -lt $(($(stat -c %s all_$family/model.safetensors) * 6 / 10)) ] ||
    complain "$family in bf16 takes as much"
  talks half_$family >/dev/null
done
refuses "would replace" -- export --model llama --adapter tuned_llama.safetensors --out llama
refuses --full .gguf folder -- tune --model llama --data talk.jsonl --full --out x.safetensors
refuses --type folder -- tune --model llama --data talk.jsonl --full --out x --type F32
refuses "would replace" -- tune --model gpt2 --data talk.jsonl --context 48 --out gpt2/model.safetensors
refuses "no matrix" -- talk --model llama --weights nf4 --prompt x
cmp <(talks gpt2 --weights nf4) <(talks gpt2.gguf --weights nf4) || complain "encoded, gpt2 talks otherwise from a folder"
refuses "tensor" "not as this network" -- talk --model gpt2 --adapter tuned_llama.safetensors --prompt x

# A text begins and ends as its tokenizer says.
cat talk.jsonl >text.txt
rm -rf ended
cp -r llama ended
echo '{"add_bos_token": true, "bos_token": "<|im_start|>", "add_eos_token": true, "eos_token": "<|im_end|>"}' >ended/tokenizer_config.json
for model in llama ended; do
  "$program" tune --model $model --data text.txt --context 48 --batch 2 --threads 1 --held-out 0 --steps 1 --log $model.jsonl >out 2>err ||
    complain "a text: $(cat err)"
done
cmp -s <(steps_of llama.jsonl) <(steps_of ended.jsonl) && complain "add_bos_token changes nothing"

# talk to a folder of which something is wrong.
mkdir empty
refuses empty "no config.json" "no model.safetensors" "no tokenizer.json" -- talk --model empty --prompt x
# broken FILE SED: a Llama's folder with another FILE; without SED, without the file.
broken() {
  rm -rf broken
  cp -r llama broken
  if [ $# -eq 1 ]; then rm "broken/$1"; else sed -i "$2" "broken/$1"; fi
}
broken tokenizer.json
refuses broken "no tokenizer.json (or vocab.json with merges.txt)" -- talk --model broken --prompt x
broken model-00002-of-00002.safetensors
"$program" talk --model broken --prompt x >out 2>err && complain "a folder without one of its files"
grep -q 'model-00002-of-00002.safetensors' err || complain "a folder without one of its files: $(cat err)"
broken config.json 's/"llama"/"mistral"/'
refuses mistral "llama, qwen2, qwen3 and gpt2" -- talk --model broken --prompt x
broken config.json 's/"num_hidden_layers": 2/"num_hidden_layers": 3/'
"$program" talk --model broken --prompt x >out 2>err && complain "a folder of fewer layers"
grep -q 'model.layers.2.*is missing' err || complain "a folder of fewer layers: $(cat err)"
broken config.json 's/"vocab_size": [0-9]*/"vocab_size": 90/'
"$program" talk --model broken --prompt x >out 2>err && complain "a folder of fewer tokens"
broken tokenizer.json 's/"vocab": {/"vocab": {"zz": 500, /'
refuses broken "its tokenizer has 501 tokens, and its network 98" -- talk --model broken --prompt x
broken tokenizer.json 's/"BPE"/"Unigram"/'
refuses Unigram "the vocabulary of another" -- talk --model broken --prompt x
broken tokenizer.json 's/"BPE"/"WordPiece"/'
refuses WordPiece "BPE or Unigram" -- talk --model broken --prompt x
broken config.json 's/, "eos_token_id": \[1, 0\]//'
refuses eos_token_id plain -- talk --model broken --prompt x --template plain
broken tokenizer.json
echo '{"a": 0}' >broken/vocab.json
echo '#version: 0.2' >broken/merges.txt
refuses broken "how words are cut" tokenizer.json -- talk --model broken --prompt x
broken tokenizer.json 's/"ByteLevel", /"ByteLevel", "use_regex": false, /'
refuses words.gguf "no name for how this tokenizer cuts words" -- export --model broken --out words.gguf
refuses words.gguf "no name for how this tokenizer cuts words" -- tune --model broken --data talk.jsonl --context 48 --full --out words.gguf
[ -e words.gguf ] && complain "half a file"
refuses "--adapters writes adapters alone" --adapter -- export --model llama --out alone.gguf --adapters
refuses "files of a model" folder -- talk --model llama/config.json --prompt x
refuses nowhere -- talk --model nowhere --prompt x
"$write_model" llama falcon.gguf && sed -i 's/general.architecture\(.\{12\}\)llama/general.architecture\1falco/' falcon.gguf
refuses falco "llama, qwen2, qwen3 and gpt2" -- talk --model falcon.gguf --prompt x
finish
