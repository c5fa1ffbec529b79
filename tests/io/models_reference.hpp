// SPDX-License-Identifier: MIT
/// What small models compute: of outputs 4 elements in a row (of BERT, of each sequence's mean; of the
/// others, the first logits at positions 0, 5 and 11 of each sequence), losses, and the loss's derivatives
/// along two directions of each tensor. Written by bench/peers/model_reference.py, in double.
#pragma once

namespace models_reference {

struct Slopes {
  const char* name;
  double along[2];
};

// clang-format off
inline constexpr double gpt2_output[] = {
    0.358376246857, -0.843136585216, 0.285943762222, 1.38100579518,
    0.713082849714, -0.368295559182, -0.538524566209, -0.33402095354,
    -0.918405001123, -0.22447098195, -0.85464464767, -0.0370533189252,
    1.40439642988, 2.17915206942, 0.44810039058, -0.0636869374938,
    0.681708192458, -0.352472021565, -0.120239120924, 0.702369463363,
    0.0863121895824, 1.02065974982, -1.02039638722, 0.255612487073};
inline constexpr double gpt2_loss = 4.40599341273925;
inline constexpr Slopes gpt2_slopes[] = {
    {"wte.weight", {0.316010777703, -2.54768040059}},
    {"wpe.weight", {-0.159970786553, 1.63574487936}},
    {"h.0.ln_1.weight", {-0.328877892181, -0.0158721387574}},
    {"h.0.ln_1.bias", {-0.475219105229, -0.444560523526}},
    {"h.0.attn.c_attn.weight", {0.262549287201, -1.4078966568}},
    {"h.0.attn.c_attn.bias", {0.576905203317, -0.530097883731}},
    {"h.0.attn.c_proj.weight", {0.560320032552, 2.47939804976}},
    {"h.0.attn.c_proj.bias", {-0.154960221232, -0.51491085199}},
    {"h.0.ln_2.weight", {0.0647470235256, 0.0287144785467}},
    {"h.0.ln_2.bias", {-0.00873624069608, -0.138817182685}},
    {"h.0.mlp.c_fc.weight", {0.826735926765, -0.869184683733}},
    {"h.0.mlp.c_fc.bias", {0.429564208067, -0.0973255226768}},
    {"h.0.mlp.c_proj.weight", {0.0893427294307, -0.597175823002}},
    {"h.0.mlp.c_proj.bias", {0.000490187465812, -0.150674891287}},
    {"h.1.ln_1.weight", {0.0271063708718, 0.0259265657819}},
    {"h.1.ln_1.bias", {0.0625850014177, 0.169024368137}},
    {"h.1.attn.c_attn.weight", {0.327449836573, -0.0631743738728}},
    {"h.1.attn.c_attn.bias", {0.216081020804, 0.0795790307886}},
    {"h.1.attn.c_proj.weight", {0.296248950413, -0.209675107683}},
    {"h.1.attn.c_proj.bias", {-0.109027944284, -0.189613018266}},
    {"h.1.ln_2.weight", {0.256997613557, 0.279891939076}},
    {"h.1.ln_2.bias", {0.0490491999139, 0.131509607625}},
    {"h.1.mlp.c_fc.weight", {0.782724504983, -0.209223871939}},
    {"h.1.mlp.c_fc.bias", {-0.120587711192, -0.134426845139}},
    {"h.1.mlp.c_proj.weight", {0.0962282624104, 0.445716949652}},
    {"h.1.mlp.c_proj.bias", {-0.0803971489495, 0.0368652606179}},
    {"ln_f.weight", {-0.270165517861, 0.23432911802}},
    {"ln_f.bias", {-0.29966100673, 0.193852191933}}};

inline constexpr double llama_output[] = {
    0.444660240717, -0.736492269809, 0.766383053379, -0.170957148628,
    1.01208171351, -0.0640610912283, 1.61167554824, -0.44531752719,
    0.13209878158, 1.09251480562, -0.429457313623, -1.40127704492,
    1.98134163521, 0.109818064001, -0.763137090335, 1.55173340176,
    -0.0224505772649, 0.360517600677, -0.594765890892, -0.164432267822,
    2.00484453, 0.971156177714, -1.13635603262, 0.132947443667};
inline constexpr double llama_loss = 4.09191573946017;
inline constexpr Slopes llama_slopes[] = {
    {"model.embed_tokens.weight", {0.760459710958, 2.3871750187}},
    {"model.layers.0.input_layernorm.weight", {0.459502381381, 0.474766752588}},
    {"model.layers.0.self_attn.q_proj.weight", {-0.422795525907, -0.375486437629}},
    {"model.layers.0.self_attn.k_proj.weight", {0.524739831349, 2.00800804034}},
    {"model.layers.0.self_attn.v_proj.weight", {1.35852478795, 0.952878928693}},
    {"model.layers.0.self_attn.o_proj.weight", {-0.0925280986637, -0.63072506479}},
    {"model.layers.0.post_attention_layernorm.weight", {0.0749518503635, 0.0827646021021}},
    {"model.layers.0.mlp.gate_proj.weight", {0.437935223832, 1.8651197339}},
    {"model.layers.0.mlp.up_proj.weight", {-0.0897372006092, -0.363159802482}},
    {"model.layers.0.mlp.down_proj.weight", {-0.52441204417, -0.311833597566}},
    {"model.layers.1.input_layernorm.weight", {0.0492590785906, 0.161159188108}},
    {"model.layers.1.self_attn.q_proj.weight", {0.221740916237, 0.188377109864}},
    {"model.layers.1.self_attn.k_proj.weight", {0.143244763843, 0.105800268209}},
    {"model.layers.1.self_attn.v_proj.weight", {0.313495484937, -1.11361170967}},
    {"model.layers.1.self_attn.o_proj.weight", {0.929515742285, -0.128897364619}},
    {"model.layers.1.post_attention_layernorm.weight", {0.108183522826, 0.0658177485246}},
    {"model.layers.1.mlp.gate_proj.weight", {-0.505970892094, 0.586958738583}},
    {"model.layers.1.mlp.up_proj.weight", {0.943516443653, -1.35707805005}},
    {"model.layers.1.mlp.down_proj.weight", {0.168366372023, 0.646153935861}},
    {"model.norm.weight", {0.129295547061, 0.027279339202}},
    {"lm_head.weight", {0.708666358309, -0.887912858956}}};

inline constexpr double llama_tied_output[] = {
    -1.20487985523, 0.0351913496513, 1.2724508574, 1.16324700855,
    -2.30590400131, 0.113589091453, 1.31629527816, -0.041920634087,
    -1.49100696172, 1.36539672118, 1.18069800229, 1.00270910677,
    -0.285910552915, 1.97889155801, -0.762176508467, -0.4479130807,
    -1.38641172362, -0.433863664115, -0.288446578454, -0.806995478062,
    1.58440162987, 1.52478797782, -0.422456739115, -1.76445785699};
inline constexpr double llama_tied_loss = 3.87893525968672;
inline constexpr Slopes llama_tied_slopes[] = {
    {"model.embed_tokens.weight", {-1.04392236906, -1.90598802958}},
    {"model.layers.0.input_layernorm.weight", {-0.0676034152026, -0.0269831935274}},
    {"model.layers.0.self_attn.q_proj.weight", {0.0162496662276, -0.350126484175}},
    {"model.layers.0.self_attn.k_proj.weight", {0.0468918133708, 0.817982069443}},
    {"model.layers.0.self_attn.v_proj.weight", {0.128547654031, 1.18484572517}},
    {"model.layers.0.self_attn.o_proj.weight", {-2.93363613183, 1.12639977851}},
    {"model.layers.0.post_attention_layernorm.weight", {-0.199750628714, 0.0566133212407}},
    {"model.layers.0.mlp.gate_proj.weight", {0.42187259513, -0.215302014643}},
    {"model.layers.0.mlp.up_proj.weight", {-1.02493242759, 0.0713223648764}},
    {"model.layers.0.mlp.down_proj.weight", {-1.77173473316, -0.597116839271}},
    {"model.layers.1.input_layernorm.weight", {0.0568479826945, -0.21935358682}},
    {"model.layers.1.self_attn.q_proj.weight", {0.0660064451686, 0.0372598144709}},
    {"model.layers.1.self_attn.k_proj.weight", {0.0572533380207, 0.192126761197}},
    {"model.layers.1.self_attn.v_proj.weight", {-1.50136522847, 1.0848960085}},
    {"model.layers.1.self_attn.o_proj.weight", {-0.513398765821, 1.62075396928}},
    {"model.layers.1.post_attention_layernorm.weight", {-0.0240325977051, 0.168474097353}},
    {"model.layers.1.mlp.gate_proj.weight", {-0.156890046332, 0.759940354816}},
    {"model.layers.1.mlp.up_proj.weight", {-0.250168509148, 0.33371294525}},
    {"model.layers.1.mlp.down_proj.weight", {0.465232407235, 0.932746445359}},
    {"model.norm.weight", {0.0890980064308, -0.202166779665}}};

inline constexpr double bert_output[] = {
    0.303090768066, 0.691907150415, -0.702171987685, -0.479658065057,
    0.663061842626, 0.738931529159, -0.952105075454, -0.229365490499};
inline constexpr double bert_loss = 0.457818242720865;
inline constexpr Slopes bert_slopes[] = {
    {"embeddings.word_embeddings.weight", {0.565344419111, -0.570078947555}},
    {"embeddings.position_embeddings.weight", {0.826552635112, 0.38272307485}},
    {"embeddings.token_type_embeddings.weight", {0.145800716332, 0.057041895117}},
    {"embeddings.LayerNorm.weight", {-0.417609314005, -0.0329834156483}},
    {"embeddings.LayerNorm.bias", {-0.092787690715, -0.0653775911563}},
    {"encoder.layer.0.attention.self.query.weight", {-0.0982397592084, -0.0552385391316}},
    {"encoder.layer.0.attention.self.query.bias", {0.022949842179, 0.10871039273}},
    {"encoder.layer.0.attention.self.key.weight", {-0.10767707524, -0.0825141520247}},
    {"encoder.layer.0.attention.self.key.bias", {1.12266505265e-18, 4.29883446381e-18}},
    {"encoder.layer.0.attention.self.value.weight", {-1.28719254135, -0.639092795547}},
    {"encoder.layer.0.attention.self.value.bias", {0.328561257094, -0.0735078278322}},
    {"encoder.layer.0.attention.output.dense.weight", {-0.96506798065, -0.0292495156471}},
    {"encoder.layer.0.attention.output.dense.bias", {-0.374035310346, 0.148658795048}},
    {"encoder.layer.0.attention.output.LayerNorm.weight", {-0.00656288672856, -0.0692496122743}},
    {"encoder.layer.0.attention.output.LayerNorm.bias", {0.306671532452, -0.235949673921}},
    {"encoder.layer.0.intermediate.dense.weight", {-0.0536326420291, -0.329361241339}},
    {"encoder.layer.0.intermediate.dense.bias", {-0.0282857446786, 0.205817163791}},
    {"encoder.layer.0.output.dense.weight", {0.0272931623907, 0.470551091677}},
    {"encoder.layer.0.output.dense.bias", {-0.0965887269351, -0.236501119054}},
    {"encoder.layer.0.output.LayerNorm.weight", {0.100178620735, 0.154228534914}},
    {"encoder.layer.0.output.LayerNorm.bias", {-0.216062954209, -0.00299447763614}},
    {"encoder.layer.1.attention.self.query.weight", {-0.0353450622516, 0.120489266364}},
    {"encoder.layer.1.attention.self.query.bias", {-0.0303573259276, 0.0123608482141}},
    {"encoder.layer.1.attention.self.key.weight", {-0.043323881281, -0.0370377976539}},
    {"encoder.layer.1.attention.self.key.bias", {-2.03414344227e-18, 1.44778562341e-18}},
    {"encoder.layer.1.attention.self.value.weight", {-0.207223768971, -0.65601086579}},
    {"encoder.layer.1.attention.self.value.bias", {0.106000638694, -0.181198599717}},
    {"encoder.layer.1.attention.output.dense.weight", {0.200210856029, 0.115230984896}},
    {"encoder.layer.1.attention.output.dense.bias", {-0.0565140144325, -0.153278354949}},
    {"encoder.layer.1.attention.output.LayerNorm.weight", {0.180486240796, 0.0565966898241}},
    {"encoder.layer.1.attention.output.LayerNorm.bias", {-0.118874307005, 0.146992775633}},
    {"encoder.layer.1.intermediate.dense.weight", {-0.149083559465, 0.0248517217245}},
    {"encoder.layer.1.intermediate.dense.bias", {-0.00225753371375, -0.147017445556}},
    {"encoder.layer.1.output.dense.weight", {0.418834345008, -0.378406600083}},
    {"encoder.layer.1.output.dense.bias", {-0.101879842799, 0.011794902326}},
    {"encoder.layer.1.output.LayerNorm.weight", {0.063004192987, -0.0248747791508}},
    {"encoder.layer.1.output.LayerNorm.bias", {-0.236231606638, -0.16745645618}}};

// clang-format on

}  // namespace models_reference
