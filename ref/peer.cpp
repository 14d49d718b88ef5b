// What llama.cpp computes, for the recordings: ids of a text, logits of every position, greedy text.
//
//   peer tokens MODEL TEXT_FILE special(0|1)          ids of the text, with <bos> as the file says
//   peer logits MODEL IDS_FILE OUT.f32 kv COUNT       logits of each line's last COUNT positions,
//                                                     0: of all, read in one pass
//   peer follow MODEL IDS_FILE OUT.f32 kv COUNT       the same, these positions one at a time
//   peer greedy MODEL IDS_FILE COUNT kv               for each line of ids "id gap id gap ..."
//
// An IDS_FILE holds one sequence a line, ids apart by spaces; logits are [positions, vocabulary].
// kv is f16, as llama.cpp comes, or f32, which also turns flash attention off: the nearest to the
// textbook that it gets. A gap is the largest logit less the second. THREADS in the environment.
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

static llama_context * context(llama_model * model, size_t positions, const char * kv) {
    const char * threads = getenv("THREADS");
    auto params = llama_context_default_params();
    params.n_ctx = positions;
    params.n_batch = positions;
    params.n_threads = params.n_threads_batch = threads ? atoi(threads) : 1;
    if (!strcmp(kv, "f32")) {
        params.type_k = params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    auto * made = llama_init_from_model(model, params);
    if (!made) fail("no context");
    return made;
}

// Runs ids from position `from` on and asks for logits of those from index `first` on.
static void decode(llama_context * ctx, const Ids & ids, size_t from, size_t first) {
    auto batch = llama_batch_init(ids.size(), 0, 1);
    batch.n_tokens = ids.size();
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = from + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = i >= first;
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

static void logits(llama_model * model, int vocabulary, bool follow, char ** argv) {
    FILE * out = fopen(argv[4], "wb");
    if (!out) fail("cannot write the logits");
    for (const Ids & ids : read_lines(argv[3])) {
        auto * ctx = context(model, ids.size(), argv[5]);
        size_t count = atoi(argv[6]) ? atoi(argv[6]) : ids.size();
        size_t first = ids.size() - count;
        auto keep = [&](int row) {
            fwrite(llama_get_logits_ith(ctx, row), sizeof(float), vocabulary, out);
        };
        if (follow) {
            decode(ctx, Ids(ids.begin(), ids.begin() + first + 1), 0, first);
            keep(first);
            for (size_t at = first + 1; at < ids.size(); at++) {
                decode(ctx, {ids[at]}, at, 0);
                keep(0);
            }
        } else {
            decode(ctx, ids, 0, first);
            for (size_t row = first; row < ids.size(); row++) keep(row);
        }
        llama_free(ctx);
    }
    fclose(out);
}

static void greedy(llama_model * model, int vocabulary, char ** argv) {
    int count = atoi(argv[4]);
    for (const Ids & prompt : read_lines(argv[3])) {
        auto * ctx = context(model, prompt.size() + count, argv[5]);
        Ids ids = prompt;
        size_t from = 0;
        for (int step = 0; step < count; step++) {
            decode(ctx, ids, from, ids.size() - 1);
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
    else if (mode == "logits" && argc > 6) logits(model, vocabulary, false, argv);
    else if (mode == "follow" && argc > 6) logits(model, vocabulary, true, argv);
    else if (mode == "greedy" && argc > 5) greedy(model, vocabulary, argv);
    else fail("no such mode");
}
