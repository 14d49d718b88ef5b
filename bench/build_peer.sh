#!/bin/sh
# Builds llama.cpp, the peer that recordings and bench/peers.py compare with.
#
#   bench/build_peer.sh FOLDER [native|zen4|avx2]
#
# The source is the copy that the sdist of llama-cpp-python carries (0.3.36: ggml 0.25.3), because
# a package index serves it anywhere. `native` uses everything this processor has, `zen4` the
# instruction sets of AMD's Zen 4 on any processor that has them, so without AMX, and `avx2` those of
# processors since Haswell. Needs cmake, ninja, a C++17 compiler and pip; takes about 12
# processor-minutes. Programs: FOLDER/VARIANT/bin.
set -eu

folder=${1:?usage: build_peer.sh FOLDER [native|zen4|avx2]}
variant=${2:-native}
version=0.3.36

case $variant in
native) flags="-DGGML_NATIVE=ON" ;;
zen4) flags="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
    -DGGML_BMI2=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON
    -DGGML_AVX512_BF16=ON" ;;
avx2) flags="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
    -DGGML_BMI2=ON" ;;
*) echo "build_peer.sh: no variant '$variant'; native, zen4 or avx2" >&2 && exit 2 ;;
esac

mkdir -p "$folder"
source="$folder/llama.cpp"
if [ ! -d "$source" ]; then
    python3 -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation \
        --dest "$folder" "llama-cpp-python==$version"
    tar xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
    mv "$folder/llama_cpp_python-$version/vendor/llama.cpp" "$source"
    rm -r "$folder/llama_cpp_python-$version"
fi

# GCC 12 takes the tile configuration for unread and drops its stores (its ldtilecfg names 8 bytes
# of 64 as read), and llama.cpp then dies of an illegal instruction where it uses AMX.
tiles="$source/ggml/src/ggml-cpu/amx/mmq.cpp"
grep -q '"r"(&tc)' "$tiles" || sed -i \
    's|^    _tile_loadconfig(&tc);|    __asm__ volatile("" :: "r"(\&tc) : "memory");\n&|' "$tiles"

# shellcheck disable=SC2086  # the flags are several words
cmake -S "$source" -B "$folder/$variant" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF $flags
nice ninja -C "$folder/$variant" llama-completion llama-bench llama-quantize \
    llama-tokenize llama-server

# The recorder's program, against the library just built.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
c++ -std=c++17 -O2 -I "$source/include" -I "$source/ggml/include" "$here/../ref/peer.cpp" \
    -o "$folder/$variant/bin/peer" -L "$folder/$variant/bin" -lllama -lggml -lggml-base \
    -Wl,-rpath,"$folder/$variant/bin"
echo "$folder/$variant/bin"
