"""The recurrent models of the Fermilab seed: supervised LSTM and LSTM forecast, trained in torch, run in numpy."""
