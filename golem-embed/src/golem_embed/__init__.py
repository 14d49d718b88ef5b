"""Text encoders on golem: embeddings and reranking."""
