"""The last layers of a language model: frozen parameters, AdamW, physical batches; then all again by ghost clipping."""

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

EPSILON, EPOCHS, MAX_GRAD_NORM = 7.5, 2, 0.1


def new_model():
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=3, **sizes))
    for p in model.parameters():
        p.requires_grad = False
    for layer in [model.bert.encoder.layer[-1], model.bert.pooler, model.classifier]:
        for p in layer.parameters():
            p.requires_grad = True
    return model.train()


torch.manual_seed(0)
ids = torch.randint(20, (120, 7))
sentences = TensorDataset(ids, torch.ones_like(ids), torch.zeros_like(ids), torch.randint(3, (120,)))
train_dataloader = DataLoader(sentences, batch_size=32)
DELTA = 1 / len(sentences)
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, eps=1e-8)
privacy_engine = PrivacyEngine()
model, optimizer, train_dataloader = privacy_engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=train_dataloader,
    target_delta=DELTA,
    target_epsilon=EPSILON,
    epochs=EPOCHS,
    max_grad_norm=MAX_GRAD_NORM,
)
epsilons = []
for _ in range(1, EPOCHS + 1):
    with BatchMemoryManager(
        data_loader=train_dataloader, max_physical_batch_size=8, optimizer=optimizer
    ) as memory_safe_data_loader:
        for step, batch in enumerate(memory_safe_data_loader):
            optimizer.zero_grad()
            names = ("input_ids", "attention_mask", "token_type_ids", "labels")
            loss = model(**dict(zip(names, batch, strict=True)))[0]
            loss.backward()
            optimizer.step()
            if step > 0 and step % 10 == 0:
                epsilons.append(privacy_engine.get_epsilon(DELTA))

model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, eps=1e-8)
privacy_engine = PrivacyEngine()
model, optimizer, criterion, train_dataloader = privacy_engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=train_dataloader,
    criterion=nn.CrossEntropyLoss(reduction="mean"),
    target_delta=DELTA,
    target_epsilon=EPSILON,
    epochs=EPOCHS,
    max_grad_norm=MAX_GRAD_NORM,
    grad_sample_mode="ghost",
)
for _ in range(1, EPOCHS + 1):
    for batch in train_dataloader:
        optimizer.zero_grad()
        outputs = model(input_ids=batch[0], attention_mask=batch[1], token_type_ids=batch[2], labels=batch[3])
        loss = criterion(outputs[1], batch[3])
        loss.backward()
        optimizer.step()
    epsilons.append(privacy_engine.get_epsilon(DELTA))
