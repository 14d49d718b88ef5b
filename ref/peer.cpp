// What llama.cpp computes, for the recordings: ids of a text, logits of every position, greedy text.
//
//   peer tokens MODEL TEXT_FILE special(0|1)             ids of the text, with <bos> as the file says
//   peer logits MODEL IDS_FILE OUT.f32 kv(f16|f32)       logits [positions, vocabulary] of each line
//   peer greedy MODEL IDS_FILE COUNT threads             for each line of ids "id gap id gap ..."
//
// An IDS_FILE holds one sequence a line, ids apart by spaces. `kv` f32 also turns flash attention
// off: the nearest to the textbook that llama.cpp comes. A gap is the largest logit less the second.
// Build: bench/build_peer.sh compiles it beside the library.

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using Ids = std::vector<llama_token>;

[[noreturn]] static void fail(const char * what) {
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

static std::vector<Ids> read_lines(const char * path) {
    std::ifstream file(path);
    if (!file) fail("cannot read the ids");
    std::vector<Ids> lines;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        Ids ids;
        for (llama_token id; words >> id;) ids.push_back(id);
        lines.push_back(ids);
    }
    return lines;
}

static llama_context * context(llama_model * model, size_t positions, bool exact, int threads) {
    auto params = llama_context_default_params();
    params.n_ctx = positions;
    params.n_batch = positions;
    params.n_threads = params.n_threads_batch = threads;
    if (exact) {
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    auto * made = llama_init_from_model(model, params);
    if (!made) fail("no context");
    return made;
}

// Runs ids from position `from` on and asks for logits of all of them, or of the last.
static void decode(llama_context * ctx, const Ids & ids, size_t from, bool all) {
    auto batch = llama_batch_init(ids.size(), 0, 1);
    batch.n_tokens = ids.size();
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = from + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = all || i + 1 == ids.size();
    }
    if (llama_decode(ctx, batch)) fail("decode failed");
    llama_batch_free(batch);
}

static void tokens(llama_model * model, char ** argv) {
    std::ifstream file(argv[3], std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    Ids ids(text.size() + 16);
    int count = llama_tokenize(llama_model_get_vocab(model), text.data(), text.size(), ids.data(),
                               ids.size(), true, atoi(argv[4]));
    if (count < 0) fail("tokenize failed");
    for (int i = 0; i < count; i++) printf("%d ", ids[i]);
    printf("\n");
}

static void logits(llama_model * model, int vocabulary, char ** argv) {
    FILE * out = fopen(argv[4], "wb");
    if (!out) fail("cannot write the logits");
    for (const Ids & ids : read_lines(argv[3])) {
        auto * ctx = context(model, ids.size(), !strcmp(argv[5], "f32"), 2);
        decode(ctx, ids, 0, true);
        for (size_t i = 0; i < ids.size(); i++) {
            fwrite(llama_get_logits_ith(ctx, i), sizeof(float), vocabulary, out);
        }
        llama_free(ctx);
    }
    fclose(out);
}

static void greedy(llama_model * model, int vocabulary, char ** argv) {
    int count = atoi(argv[4]);
    for (const Ids & prompt : read_lines(argv[3])) {
        auto * ctx = context(model, prompt.size() + count, false, atoi(argv[5]));
        Ids ids = prompt;
        size_t from = 0;
        for (int step = 0; step < count; step++) {
            decode(ctx, ids, from, false);
            from += ids.size();
            const float * row = llama_get_logits_ith(ctx, -1);
            int best = 0;
            for (int i = 1; i < vocabulary; i++) if (row[i] > row[best]) best = i;
            int next = best == 0 ? 1 : 0;
            for (int i = 0; i < vocabulary; i++) if (i != best && row[i] > row[next]) next = i;
            printf("%d %.6g ", best, row[best] - row[next]);
            ids = {best};
        }
        printf("\n");
        fflush(stdout);
        llama_free(ctx);
    }
}

int main(int argc, char ** argv) {
    if (argc < 5) fail("usage: see the top of peer.cpp");
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    auto * model = llama_model_load_from_file(argv[2], llama_model_default_params());
    if (!model) fail("the model does not load");
    int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::string mode = argv[1];
    if (mode == "tokens") tokens(model, argv);
    else if (mode == "logits" && argc > 5) logits(model, vocabulary, argv);
    else if (mode == "greedy" && argc > 5) greedy(model, vocabulary, argv);
    else fail("no such mode");
}
